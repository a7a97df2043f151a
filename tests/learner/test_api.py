"""`seed.train` trains in the process that calls it."""

import dataclasses
import os
import signal
import threading
from pathlib import Path

import pytest

import seed
from learner.agents.vtrace import VTraceAgent
from learner.checkpoint import load_checkpoint
from learner.config.presets import PRESETS
from learner.config.run_config import LearnerConfig, RunConfig
from learner.run_lock import RunLock
from seed.env_config import EnvConfig
from seed.errors import ConfigError, RunInUseError


def short_run(train_in: str = "thread") -> RunConfig:
    """Returns a run of CartPole with few updates."""
    learner = LearnerConfig(total_env_steps=2_000, train_in=train_in)  # type: ignore[arg-type]
    return dataclasses.replace(PRESETS["cartpole-vtrace"].config, learner=learner)


def test_a_run_is_complete_and_its_policy_acts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two lines train and load; signals stay as they were, and nothing is printed."""
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    result = seed.train(short_run(), run_dir=tmp_path / "run")
    assert result.report["env_steps"] >= 2_000
    assert load_checkpoint(result.run_dir / "checkpoints").learner_step > 0
    action, _ = seed.load_policy(result.run_dir).act([0.0, 0.0, 0.0, 0.0])
    assert action in (0, 1)
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert capsys.readouterr().out == ""
    with pytest.raises(ConfigError, match="run_dir: expected a new directory, or resume"):
        seed.train(short_run(), run_dir=tmp_path / "run")
    again = seed.train(short_run(), run_dir=tmp_path / "run", resume=True)  # it is complete
    assert again.report["env_steps"] == result.report["env_steps"]
    other = dataclasses.replace(short_run(), env=EnvConfig(env_id="Acrobot-v1"))
    with pytest.raises(ConfigError, match="^env_id: expected 'CartPole-v1', the environment of"):
        seed.train(other, run_dir=tmp_path / "run", resume=True)


@pytest.mark.parametrize("resume", [False, True])
def test_run_directory_of_another_learner_is_refused(tmp_path: Path, resume: bool) -> None:
    """The error names the process that uses it."""
    lock = RunLock(tmp_path / "learner.lock")
    named = f"no other learner uses.* used by process {os.getpid()}"
    with pytest.raises(RunInUseError, match=named):
        seed.train(short_run(), run_dir=tmp_path, resume=resume)
    lock.release()
    assert [path.name for path in tmp_path.iterdir()] == ["learner.lock"]


def test_id_that_is_not_registered_leaves_no_run_directory(tmp_path: Path) -> None:
    """No actor is started for it."""
    config = dataclasses.replace(short_run(), env=EnvConfig(env_id="CartPol-v1"))
    with pytest.raises(ConfigError, match="^env_id: .*Did you mean: `CartPole`"):
        seed.train(config, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_failure_of_a_thread_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller gets the error of the loss, and every thread has ended."""

    def explode(*_: object) -> None:
        raise RuntimeError("boom in the loss")

    monkeypatch.setattr(VTraceAgent, "loss", explode)
    with pytest.raises(RuntimeError, match="boom in the loss"):
        seed.train(short_run(), run_dir=tmp_path / "run")
    assert not {t.name for t in threading.enumerate()} & {"trainer", "inference", "server"}


def test_local_actors_step_by_workers(tmp_path: Path) -> None:
    """Each of the actors starts as many worker processes as asked for, and the run goes on."""
    result = seed.train(short_run(), run_dir=tmp_path / "run", env_workers=2)
    assert result.report["env_steps"] >= 2_000
    log = (tmp_path / "run" / "actor-0.log").read_text()
    assert "connected to run" in log
