"""Threads of the learner: what they raise, and who goes first."""

import os
import sys
import threading
from concurrent.futures import Future

import pytest
import torch

from learner.concurrency.threads import start_thread
from learner.device import setup
from learner.device.setup import num_train_threads
from tests.learner.builders import TIMEOUT_S


def fail(error: BaseException) -> None:
    """No thread is expected to raise."""
    raise AssertionError from error


def test_what_a_thread_raises_goes_to_on_failure() -> None:
    """Also a BaseException: no thread ends unnoticed."""
    raised: Future[BaseException] = Future()

    def leave() -> None:
        raise SystemExit(3)

    start_thread("leaving", leave, raised.set_result).join(TIMEOUT_S)
    assert isinstance(raised.result(TIMEOUT_S), SystemExit)


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own")
def test_nice_thread_steps_back_alone() -> None:
    """The others keep the priority they had."""
    seen: Future[int] = Future()

    def look() -> None:
        seen.set_result(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    start_thread("nice", look, fail, niceness=before + 3).join(TIMEOUT_S)
    assert seen.result(TIMEOUT_S) == before + 3
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == before


@pytest.mark.parametrize(("cores", "wanted"), [(1, 1), (2, 1), (5, 2), (8, 4), (64, 4)])
def test_half_of_the_cores_train(monkeypatch: pytest.MonkeyPatch, cores: int, wanted: int) -> None:
    """The other half acts and steps local environments; a GPU wants one thread."""
    monkeypatch.setattr(setup, "num_cores", lambda: cores)
    assert num_train_threads(torch.device("cpu"), 0) == wanted
    assert num_train_threads(torch.device("cpu"), 3) == 3
    assert num_train_threads(torch.device("cuda"), 3) == 1
