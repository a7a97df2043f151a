"""What a killed process leaves behind is ended with it."""

import signal
import subprocess
import sys

from learner.concurrency.process_group import end_group, name_of_signal

_PARENT = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(1000)"])
sys.stdin.read()
"""


def test_group_ends_with_its_children() -> None:
    """The child holds stdout, which ends with the last process that holds it."""
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        process_group=0,
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"up\n"
    parent.kill()
    parent.wait()
    end_group(parent.pid)
    assert parent.stdout.read() == b""
    end_group(parent.pid)  # nothing is left
    parent.communicate()


def test_signals_are_named() -> None:
    """A signal of real time has no name."""
    assert name_of_signal(signal.SIGBUS) == f"signal {int(signal.SIGBUS)} (SIGBUS)"
    assert name_of_signal(40) == "signal 40"
