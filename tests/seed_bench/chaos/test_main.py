"""`make chaos` in short, and the settings that it refuses."""

from pathlib import Path

import pytest

from seed.errors import ConfigError
from seed_bench.chaos.__main__ import ChaosArgs, is_good, run_chaos, table
from seed_bench.chaos.elasticity import ElasticityArgs


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_run_survives_a_fault_of_each_kind(tmp_path: Path) -> None:
    """Progress follows each fault, every checkpoint can be read, and the run ends by itself."""
    result = run_chaos(
        tmp_path, num_faults=12, total_env_steps=80_000, rng_seed=1, share_with_faults=0.5
    )
    assert is_good(result), table(result)
    assert all(counts["injected"] for counts in result["faults"].values())
    assert result["learner_kills"] >= 3
    assert result["checkpoints_verified"] >= 3
    assert result["env_steps"] >= 80_000


def test_settings_that_cannot_work_are_refused() -> None:
    """The error names the flag."""
    with pytest.raises(ConfigError, match="^faults: expected at least 1, got 0"):
        ChaosArgs(faults=0)
    with pytest.raises(ConfigError, match="^cycles: expected at least 2, got 1"):
        ElasticityArgs(cycles=1)
