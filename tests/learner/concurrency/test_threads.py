"""Threads of the learner: where their errors go, and which of them have priority."""

import os
import sys
import threading
from concurrent.futures import Future

import pytest

from learner.concurrency.threads import start_thread
from tests.learner.builders import TIMEOUT_S


def fail(error: BaseException) -> None:
    """No thread is expected to raise."""
    raise AssertionError from error


def test_what_a_thread_raises_goes_to_on_failure() -> None:
    """This includes a BaseException, so that no thread ends unnoticed."""
    raised: Future[BaseException] = Future()

    def leave() -> None:
        raise SystemExit(3)

    start_thread("leaving", leave, raised.set_result).join(TIMEOUT_S)
    assert isinstance(raised.result(TIMEOUT_S), SystemExit)


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own")
def test_nice_thread_steps_back_alone() -> None:
    """The other threads keep their priority."""
    seen: Future[int] = Future()

    def look() -> None:
        seen.set_result(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    start_thread("nice", look, fail, niceness=before + 3).join(TIMEOUT_S)
    assert seen.result(TIMEOUT_S) == before + 3
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == before
