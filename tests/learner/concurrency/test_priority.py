"""The niceness of a process of our own."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from learner.concurrency.priority import let_others_go_first


@pytest.fixture
def pid() -> Iterator[int]:
    """The id of a process that waits until the test ends it."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process.pid
    process.kill()
    process.wait()
    assert process.stdin is not None
    process.stdin.close()


def test_process_gets_nicer_and_never_less_so(pid: int) -> None:
    """A lower niceness needs privileges that few users have; the run goes on without them."""
    before = os.getpriority(os.PRIO_PROCESS, pid)
    let_others_go_first(pid, before + 2)
    assert os.getpriority(os.PRIO_PROCESS, pid) == before + 2
    let_others_go_first(pid, before + 1)
    assert os.getpriority(os.PRIO_PROCESS, pid) == before + 2
