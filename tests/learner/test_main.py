"""`run_learner`: the exit code of a run, and what it prints where."""

import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from learner import main
from learner.config.args import LearnerArgs
from learner.config.presets import PRESETS
from learner.config.run_dir import RunDir
from learner.config.torchrun import Place
from seed.env_config import AtariConfig, EnvConfig
from seed.errors import ConfigError, SeedError

FINAL = {"env_steps": 12.0, "learner_steps": 3.0}


class NoStopRequest:
    """Stands for `StopRequest`, which would take over the signals of the tests."""

    requested = False


def run_to(
    monkeypatch: pytest.MonkeyPatch,
    outcome: Exception | dict[str, float],
    *,
    was_complete: bool = False,
    **args: object,
) -> int:
    """Returns the exit code of a run that ends with an error, or with a report."""

    def run(*_: object, **__: object) -> main.Ended:
        if isinstance(outcome, Exception):
            raise outcome
        return main.Ended(RunDir(Path("runs/x")), outcome, was_complete)

    monkeypatch.setattr(main, "run", run)
    monkeypatch.setattr(main, "StopRequest", NoStopRequest)
    config = PRESETS["catch-vtrace"].config
    learner_args = LearnerArgs(config=config, **args)  # type: ignore[arg-type]
    return main.run_learner("catch-vtrace", learner_args)


def test_complete_run_exits_0_and_says_where_it_is_saved(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --json stdout holds the final report as one object, and nothing else."""
    monkeypatch.setattr("learner.last_words.was_ever_saved", lambda directory: True)
    assert run_to(monkeypatch, FINAL) == 0
    assert "saved in runs/x" in capsys.readouterr().out
    assert run_to(monkeypatch, FINAL, json=True) == 0
    assert json.loads(capsys.readouterr().out) == FINAL | {"run_dir": "runs/x"}


def test_run_that_is_stopped_before_its_first_checkpoint_does_not_say_that_it_is_saved(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C while environments are still being made leaves nothing for seed eval."""
    assert run_to(monkeypatch, FINAL) == 0
    assert capsys.readouterr().out == "stopped before the first env step; nothing is saved\n"


def test_run_that_was_complete_before_exits_0_and_says_what_to_raise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A supervisor that starts failed learners again is content with 0."""
    assert run_to(monkeypatch, FINAL, was_complete=True) == 0
    budget = PRESETS["catch-vtrace"].config.learner.total_env_steps
    said = "runs/x is complete: 12 env steps; to go on, raise --total-env-steps, which is"
    assert capsys.readouterr().out == f"{said} {budget}\n"


def test_closed_terminal_costs_no_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last line cannot be printed, but the run is saved."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed, monkeypatch.context() as patch:
        patch.setattr("sys.stdout", closed)
        assert run_to(patch, FINAL) == 0
        print("what Python writes at its end", flush=True)


class LearnerThatGoesOn:
    """Has not finished, and remembers why it failed."""

    def __init__(self) -> None:
        self.finished = threading.Event()
        self.failure: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        """Ends the run; a run that failed saves nothing."""
        self.failure = error


def test_learner_whose_directory_another_one_took_over_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was away for long; to save now would replace the other's checkpoints."""
    monkeypatch.setattr(main, "_TICK_S", 0.0)
    learner, error = LearnerThatGoesOn(), SeedError("process 7 took this learner for dead")
    claim = SimpleNamespace(lost=error)
    main._serve(learner, None, claim, lambda: None, NoStopRequest())  # type: ignore[arg-type]
    assert learner.failure is error


def test_only_the_first_of_several_learners_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others end with the same exit code."""
    second = Place(rank=1, size=2, local_rank=1)
    monkeypatch.setattr(main, "place_from_environment", lambda: second)
    assert run_to(monkeypatch, FINAL) == run_to(monkeypatch, FINAL, json=True) == 0
    assert capsys.readouterr().out == ""


def test_bug_exits_1_with_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a thread raised goes to stderr, and stdout stays empty."""
    assert run_to(monkeypatch, ZeroDivisionError("a bug")) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" in err
    assert "ZeroDivisionError: a bug" in err


def test_error_of_the_user_is_left_to_the_command_line_or_to_the_json_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is raised with a log of text, and logged once with exit code 2 with a log in JSON."""
    error = ConfigError("device: expected one that this machine has, got cuda")
    with pytest.raises(ConfigError):
        run_to(monkeypatch, error)
    assert capsys.readouterr().err == ""
    assert run_to(monkeypatch, error, log_format="json") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["message"] == str(error)


@pytest.mark.parametrize(
    ("preset", "env", "is_noted"),
    [
        ("atari-vtrace", EnvConfig(env_id="CartPole-v1"), True),
        ("catch-vtrace", EnvConfig(env_id="CartPole-v1", atari=AtariConfig(frame_skip=2)), True),
        ("catch-vtrace", EnvConfig(env_id="CartPole-v1"), False),
        ("atari-vtrace", EnvConfig(env_id="ale_py:ALE/Pong-v5"), False),
    ],
)
def test_settings_of_atari_that_do_nothing_are_named(
    preset: str, env: EnvConfig, is_noted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A preset for Atari, or one of its flags, takes any environment; the log says so once."""
    main.note_idle_settings(preset, env)
    wanted = "is no game of ALE/*: frame skip, screen size, sticky actions and the other flags"
    assert (wanted in caplog.text) is is_noted
