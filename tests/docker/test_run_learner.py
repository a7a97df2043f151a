"""docker/k8s/base/run_learner.py: which exit code a Job of Kubernetes sees."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.tools import DOCKER

SCRIPT = DOCKER / "k8s" / "base" / "run_learner.py"
TIMEOUT_S = 60.0


def start(directory: Path, program: str, args: Sequence[str] = ()) -> subprocess.Popen[str]:
    """Starts the script with a Python program called `seed` on the path."""
    (directory / "program.py").write_text(program)
    seed = directory / "seed"
    seed.write_text(f'#!/bin/sh\nexec python3 -u {directory}/program.py "$@"\n')
    seed.chmod(0o755)
    return subprocess.Popen(
        [sys.executable, "-I", str(SCRIPT), *args],
        env={"PATH": f"{directory}{os.pathsep}{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        text=True,
    )


def learner(code: int) -> str:
    """Returns a program that prints its id, and ends with `code` after SIGTERM."""
    return (
        "import os, signal, sys\n"
        f"signal.signal(signal.SIGTERM, lambda *_: sys.exit({code}))\n"
        "print(os.getpid())\n"
        "while True:\n"
        "    signal.pause()\n"
    )


@pytest.mark.parametrize("code", [0, 1, 2])
def test_learner_that_ends_by_itself_keeps_its_exit_code(code: int, tmp_path: Path) -> None:
    """0 is a complete run, 2 an error of configuration, 1 any other error."""
    process = start(tmp_path, f"raise SystemExit({code})")
    process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == code


@pytest.mark.parametrize(("code", "seen"), [(0, 143), (1, 1), (2, 2)])
def test_stopped_learner_is_no_complete_run(code: int, seen: int, tmp_path: Path) -> None:
    """A learner that saves because its node is drained ends with 0, which the Job must not see."""
    process = start(tmp_path, learner(code))
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == seen


def test_second_signal_does_not_cut_the_saving_short(tmp_path: Path) -> None:
    """The script waits for the learner's end, however often it is told to stop."""
    program = (
        "import signal, sys\n"
        "signals = []\n"
        "signal.signal(signal.SIGTERM, lambda *_: (signals.append(1), print('saving')))\n"
        "print('ready')\n"
        "while len(signals) < 2:\n"
        "    signal.pause()\n"
        "print('saved')\n"
    )
    process = start(tmp_path, program)
    assert process.stdout is not None
    process.stdout.readline()
    for _ in range(2):
        process.terminate()
        assert process.stdout.readline() == "saving\n"
    assert process.stdout.read() == "saved\n"
    assert process.wait(TIMEOUT_S) == 143


def test_killed_learner_is_an_error(tmp_path: Path) -> None:
    """137, as after a kill for want of memory."""
    process = start(tmp_path, learner(0))
    assert process.stdout is not None
    os.kill(int(process.stdout.readline()), signal.SIGKILL)
    process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 137


def test_arguments_arrive_as_they_are(tmp_path: Path) -> None:
    """Also those with spaces and with characters that a shell would replace."""
    args = ["learner", "a b", "$HOME", "*", ""]
    process = start(tmp_path, "import sys; print(sys.argv[1:])", args)
    assert process.communicate(timeout=TIMEOUT_S)[0] == f"{args}\n"
