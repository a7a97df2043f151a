"""`make elasticity` in short."""

import json
from pathlib import Path

import pytest

from seed_bench.chaos.elasticity import LearnerUnderWatch, watch


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
