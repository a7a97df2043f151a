"""The learner's handle on its trainer process, when the learner does not close it."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from learner.training.process.handle import _make_lock
from seed.errors import ConfigError
from tests.learner.builders import TIMEOUT_S

LEARNER = """
from pathlib import Path
from learner.reporting.progress import Progress
from learner.training.ranks import Ranks
from learner.training.process.handle import TrainerProcess
from learner.config.run_dir import RunDir
from learner.training.base import LearnerHooks, TrainingSetup
from learner.config.presets import PRESETS

hooks = LearnerHooks(acting_state=dict, on_finished=print, on_failure=print)
config = PRESETS["catch-vtrace"].config
trainer = TrainerProcess(
    TrainingSetup(config, Progress(), Ranks(), run_dir=RunDir(Path("run")), hooks=hooks)
)
trainer.report()  # it is there, and deaf to SIGTERM
raise SystemExit("something else went wrong")
"""


def test_learner_that_ends_without_closing_it_does_not_hang() -> None:
    """Python waits for its child processes, and the trainer process for its learner."""
    done = subprocess.run(
        [sys.executable, "-c", LEARNER],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.endswith("something else went wrong\n")


def test_dev_shm_without_room_for_a_lock_is_named() -> None:
    """Everything else that the two processes share lies outside /dev/shm."""

    def refuse() -> None:
        raise OSError(28, "No space left on device")

    context: Any = SimpleNamespace(Lock=refuse)
    wanted = "train_in: expected thread, or a /dev/shm that has room for a lock"
    with pytest.raises(ConfigError, match=wanted):
        _make_lock(context)
