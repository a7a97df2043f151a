"""What an actor tells its parent, and that it ends with it even when an environment hangs."""

import os
import subprocess
import sys
import threading

import pytest

from actors.loop import run_loop
from actors.parent import FirstStepTold
from seed.errors import LearnerUnavailableError
from tests.actors.test_loop import FunctionPolicy, _groups

# Starts an actor that does not end at SIGTERM, and whose environment has started a simulator.
_PARENT = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", sys.argv[1]], process_group=0)
sys.stdin.read()
"""
_DEAF_ACTOR = """
import os, signal, subprocess, time
import actors.parent
actors.parent._CLOSE_GRACE_S = actors.parent._POLL_S = 0.05
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "1000"])
actors.parent.end_with(os.getppid())
print("up", flush=True)
time.sleep(1000)
"""


def told_after(num_answers: int) -> bytes:
    """Returns what the parent has read when the learner has hung up after so many answers."""
    read, write = os.pipe()
    connection = FirstStepTold(FunctionPolicy(num_answers), write)
    with pytest.raises(LearnerUnavailableError):
        run_loop(_groups(2, 2), connection, threading.Event())
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        return pipe.read()


@pytest.mark.parametrize(("num_answers", "told"), [(0, b""), (1, b"1"), (9, b"1")])
def test_first_step_is_told_once(num_answers: int, told: bytes) -> None:
    """A reset is no step."""
    assert told_after(num_answers) == told


def test_parent_that_has_gone_is_told_nothing() -> None:
    """The actor is about to end, and says nothing of a broken pipe."""
    read, write = os.pipe()
    os.close(read)
    connection = FirstStepTold(FunctionPolicy(3), write)
    with pytest.raises(LearnerUnavailableError):
        run_loop(_groups(1), connection, threading.Event())
    os.close(write)


def test_actor_that_does_not_end_with_its_parent_is_killed_with_its_simulators() -> None:
    """All of them hold the parent's stdout, which ends with the last of them."""
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, _DEAF_ACTOR], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"up\n"
    parent.kill()
    assert parent.stdout.read() == b""
    parent.communicate()
