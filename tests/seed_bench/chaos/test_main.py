"""`make chaos` and `make elasticity` in short, and what they decide beforehand."""

import json
from pathlib import Path

import pytest

from seed.errors import ConfigError
from seed_bench.chaos.__main__ import ChaosArgs, is_good, run_chaos, table
from seed_bench.chaos.elasticity import ElasticityArgs, LearnerUnderWatch, watch
from seed_bench.chaos.schedule import SHARES, make_schedule


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_run_survives_a_fault_of_each_kind(tmp_path: Path) -> None:
    """Each is followed by progress; every checkpoint can be read; the run ends by itself."""
    result = run_chaos(
        tmp_path, num_faults=12, total_env_steps=80_000, rng_seed=1, share_with_faults=0.5
    )
    assert is_good(result), table(result)
    assert all(counts["injected"] for counts in result["faults"].values())
    assert result["learner_kills"] >= 3
    assert result["checkpoints_verified"] >= 3
    assert result["env_steps"] >= 80_000


@pytest.mark.timeout(300)
def test_actors_that_come_and_go_leave_nothing_behind(tmp_path: Path) -> None:
    """One to 4,096 environments; what stays is the memory that the largest fleet needed."""
    learner = LearnerUnderWatch(tmp_path)
    try:
        seen = watch(learner, num_cycles=60)
        assert learner.is_running()
    finally:
        assert learner.close() == 0
    assert seen["envs_left_behind"] == 0
    assert seen["envs_max"] == 4_096
    assert seen["files_growth"] <= 2
    # A slot of 4,096 environments that stayed would take more.
    assert seen["rss_growth_mib"] < 10, json.dumps(seen)


def test_schedule_is_the_same_for_the_same_seed() -> None:
    """And holds every kind of fault, in the order in which they are due."""
    first, again = (
        make_schedule(200, num_actors=3, until_env_steps=1_000, rng_seed=4) for _ in range(2)
    )
    assert first == again
    assert first != make_schedule(200, num_actors=3, until_env_steps=1_000, rng_seed=5)
    assert len(first) == 200
    assert {fault.kind for fault in first} == SHARES.keys()
    due = [fault.due_env_steps for fault in first]
    assert due == sorted(due) and due[0] > 0 and due[-1] < 1_000


def test_settings_that_cannot_work_are_refused() -> None:
    """Naming the flag."""
    with pytest.raises(ConfigError, match="^faults: expected at least 1, got 0"):
        ChaosArgs(faults=0)
    with pytest.raises(ConfigError, match="^cycles: expected at least 2, got 1"):
        ElasticityArgs(cycles=1)
