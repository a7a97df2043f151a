"""A run that is resumed although it is complete: its totals, and what actors hear."""

from pathlib import Path

import pytest

from actors.client import fetch_task, open_channel
from learner.checkpoint import Checkpoint
from learner.complete_run import is_complete, report_of, telling_actors
from learner.config.presets import PRESETS
from learner.reporting.counters import Counters
from seed.errors import RunCompleteError
from seed.pb import inference_pb2 as pb
from seed.security import PLAIN_TEXT

CONFIG = PRESETS["cartpole-vtrace"].config


def checkpoint(env_steps: int) -> Checkpoint:
    """Returns what a checkpoint tells of a run's length."""
    counters = Counters()
    counters.add_env_steps(env_steps)
    state = {"env_steps": env_steps, "counters": counters.state_dict(), "wall_s": 7.5}
    return Checkpoint(3, {}, state, Path("x"))


def test_run_is_complete_once_its_budget_is_spent() -> None:
    """Not one step earlier."""
    budget = CONFIG.learner.total_env_steps
    assert not is_complete(checkpoint(budget - 1), CONFIG)
    assert is_complete(checkpoint(budget), CONFIG)


def test_report_has_the_totals_of_the_run() -> None:
    """As the last report of the run had."""
    report = report_of(checkpoint(64))
    assert (report["env_steps"], report["episodes"], report["wall_s"]) == (64, 0, 7.5)


def test_actor_that_comes_back_hears_that_the_run_is_complete(tmp_path: Path) -> None:
    """It was away when the run ended, and would else ask for ever."""
    address = f"unix:{tmp_path / 'x.sock'}"
    with (
        telling_actors(CONFIG, "run", [address], PLAIN_TEXT),
        open_channel(address) as channel,
        pytest.raises(RunCompleteError),
    ):
        fetch_task(channel, pb.ROLE_TRAIN, timeout_s=30.0)
