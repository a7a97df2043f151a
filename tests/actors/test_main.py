"""`python -m actors` as a real process: exit codes, messages, signals."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from actors.main import main
from seed.errors import IncompatibleError
from seed.wire import EnvOutputs
from tests.actors.fake_learner import FakeLearner, serving

_TIMEOUT_S = 30


@pytest.fixture
def address(tmp_path: Path) -> str:
    """Returns the address of a Unix socket that only this test uses."""
    return f"unix:{tmp_path}/learner.sock"


def _start(address: str, *flags: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "actors", "--learner", address, *flags],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_signal_closes_the_stream_and_exits_0(address: str, signal_number: int) -> None:
    """The learner sees the end of the stream, and the user sees no traceback."""
    with serving(learner := FakeLearner(), address):
        process = _start(address)
        assert learner.stepped.wait(_TIMEOUT_S)
        process.send_signal(signal_number)
        _, stderr = process.communicate(timeout=_TIMEOUT_S)
        assert learner.streams_ended.acquire(timeout=_TIMEOUT_S)
    assert process.returncode == 0
    assert "connected to run fake" in stderr
    assert "Traceback" not in stderr


def test_sigterm_ends_a_wait_for_a_silent_learner(address: str) -> None:
    """An actor that waits for an answer still ends at SIGTERM."""
    asked, silence = threading.Event(), threading.Event()

    def never(outputs: EnvOutputs) -> np.ndarray:
        asked.set()
        silence.wait(_TIMEOUT_S)
        raise AssertionError

    with serving(FakeLearner(policy=never), address):
        process = _start(address)
        assert asked.wait(_TIMEOUT_S)
        process.terminate()
        _, stderr = process.communicate(timeout=_TIMEOUT_S)
        silence.set()
    assert process.returncode == 0
    assert "Traceback" not in stderr


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_their_actor(address: str, signal_number: int) -> None:
    """A signal to all processes, as by Ctrl-C, ends them in order. So does kill -9 of the actor.

    Workers hold the actor's stderr, which ends with the last process that holds it.
    """
    with serving(learner := FakeLearner(), address):
        process = _start(address, "--env-workers", "2")
        assert learner.stepped.wait(_TIMEOUT_S)
        if signal_number == signal.SIGKILL:
            process.kill()
        else:
            os.killpg(process.pid, signal_number)
        _, stderr = process.communicate(timeout=_TIMEOUT_S)
    assert process.returncode == (-signal.SIGKILL if signal_number == signal.SIGKILL else 0)
    assert "Traceback" not in stderr


def test_workers_that_hang_end_with_their_actor(address: str) -> None:
    """Their environments are given a few seconds to close."""
    hangs = FakeLearner("tests.support.rough_envs:rough/Hangs-v0")
    with serving(hangs, address):
        process = _start(address, "--env-workers", "2")
        assert process.stderr is not None
        while "the step hangs" not in process.stderr.readline():
            pass
        process.kill()
        process.communicate(timeout=_TIMEOUT_S)


def test_actor_ends_with_its_parent_if_told_to(address: str) -> None:
    """An actor whose parent is killed with SIGKILL ends by itself."""
    start = (
        "import os, subprocess, sys; "
        "subprocess.run([sys.executable, '-m', 'actors', '--exit-with-parent', "
        f"str(os.getpid()), '--learner', {address!r}])"
    )
    with serving(learner := FakeLearner(), address):
        parent = subprocess.Popen([sys.executable, "-c", start], stderr=subprocess.DEVNULL)
        assert learner.stepped.wait(_TIMEOUT_S)
        parent.kill()
        parent.wait()
        assert learner.streams_ended.acquire(timeout=_TIMEOUT_S)


def test_actor_ends_if_its_parent_has_gone_before_it_could_look(address: str) -> None:
    """The parent was killed while the actor still started, which takes seconds."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    process = _start(address, "--exit-with-parent", str(gone.pid))
    process.communicate(timeout=_TIMEOUT_S)
    assert process.returncode == 0


def test_refused_hello_exits_1_with_the_learners_reason(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line on stderr says why, without a traceback."""
    refusal = IncompatibleError("action.num_values: expected 4, got 3")
    with serving(FakeLearner(refusal=refusal), address):
        assert main(["--learner", address]) == 1
    assert "seed actor: action.num_values: expected 4, got 3" in capsys.readouterr().err


def test_unknown_environment_exits_2_with_a_message(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The actor's machine may lack what the learner asks for."""
    with serving(FakeLearner("NoSuchEnv-v0"), address):
        assert main(["--learner", address]) == 2
    assert "seed actor: env_id: expected" in capsys.readouterr().err


@pytest.mark.parametrize("workers", ["0", "1"])
def test_environment_that_keeps_raising_exits_1_with_its_traceback(
    address: str, workers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of all errors this one shows its traceback, also where a worker raised it."""
    learner = FakeLearner(
        "tests.actors.odd_envs:odd/Fragile-v0", settings={"env_kwargs": '{"fails_at": 1}'}
    )
    with serving(learner, address):
        assert main(["--learner", address, "--env-workers", workers]) == 1
    stderr = capsys.readouterr().err
    assert "RuntimeError: the simulator fell over" in stderr
    assert "EnvironmentFailedError" in stderr


@pytest.mark.parametrize("workers", ["0", "1"])
def test_environment_whose_reward_stays_nan_exits_1_in_one_line(
    address: str, workers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing was raised, so a traceback would show none of the user's code."""
    learner = FakeLearner(
        "tests.actors.odd_envs:odd/NanReward-v0", settings={"env_kwargs": '{"copy": 0}'}
    )
    with serving(learner, address):
        assert main(["--learner", address, "--env-workers", workers]) == 1
    stderr = capsys.readouterr().err
    assert "Traceback" not in stderr
    assert stderr.splitlines()[-1] == (
        "seed actor: environment 0 gave a wrong answer at step 3 of its episode, for the 6th "
        "time in a row: reward: expected a finite number of float32, got nan"
    )


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(["--learner", "nowhere"], id="address"),
        pytest.param(["--learner", "a:1", "--num-groups", "0"], id="groups"),
        pytest.param(["--learner", "a:1", "--env-workers", "-1"], id="workers"),
        pytest.param(["--learner", "a:1", "--log-format", "xml"], id="log"),
    ],
)
def test_bad_flags_exit_2(flags: list[str]) -> None:
    """The parser reports usage errors; test_args.py tests the rest of them."""
    with pytest.raises(SystemExit) as caught:
        main(flags)
    assert caught.value.code == 2
