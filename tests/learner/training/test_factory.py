"""Where training runs: which end is made for which device and which setting."""

from pathlib import Path

import pytest
import torch

from learner.config.presets import PRESETS
from learner.config.run_config import LearnerConfig, RunConfig
from learner.config.run_dir import RunDir
from learner.reporting.metrics import Metrics
from learner.reporting.progress import Progress
from learner.training import factory
from learner.training.base import LearnerHooks, TrainingSetup
from learner.training.local import LocalTraining
from learner.training.ranks import Ranks


class FakeProcess:
    """Stands for `TrainerProcess`, which would start a process."""

    def __init__(self, setup: TrainingSetup) -> None:
        self.setup = setup


@pytest.mark.parametrize(
    ("device", "train_in", "expected"),
    [
        ("cpu", "auto", FakeProcess),
        ("cpu", "process", FakeProcess),
        ("cpu", "thread", LocalTraining),
        ("cuda", "auto", LocalTraining),
        ("cuda", "thread", LocalTraining),
    ],
)
def test_training_runs_where_device_and_setting_say(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, device: str, train_in: str, expected: type
) -> None:
    """By default a CPU trains in a process of its own, and a GPU on a thread."""
    monkeypatch.setattr(factory, "TrainerProcess", FakeProcess)
    preset = PRESETS["catch-vtrace"].config
    learner = LearnerConfig(train_in=train_in, total_env_steps=1)  # pyright: ignore[reportArgumentType]
    config = RunConfig(env=preset.env, agent=preset.agent, learner=learner)
    hooks = LearnerHooks(acting_state=dict, on_finished=print, on_failure=print)
    setup = TrainingSetup(config, Progress(), Ranks(), RunDir(tmp_path), hooks)
    training = factory.make_training(setup, Metrics(), torch.device(device))
    assert type(training) is expected
