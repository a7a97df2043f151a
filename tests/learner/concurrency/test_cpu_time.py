"""CPU time of other processes and of single threads."""

import os
import threading
import time

import psutil
import pytest

from learner.concurrency.cpu_time import cpu_seconds_of, cpu_seconds_of_thread

# The kernel counts in hundredths of a second.
TICK_S = 0.01
NO_PROCESS = 1 << 30


def burn(seconds: float) -> None:
    """Computes on the calling thread until it has used `seconds` of CPU time."""
    until_s = time.thread_time() + seconds
    while time.thread_time() < until_s:
        pass


def test_time_of_a_process_grows_by_what_it_computes() -> None:
    """The time agrees to the precision of the kernel's count."""
    before_s = cpu_seconds_of(os.getpid())
    burn(0.1)
    # Either count may be short of the time by one tick, and a difference of floats by a bit more.
    assert cpu_seconds_of(os.getpid()) - before_s > 0.1 - 2 * TICK_S


def test_time_of_a_thread_is_its_own() -> None:
    """A thread that waits uses none while another one computes."""
    may_end = threading.Event()
    waiting = threading.Thread(target=may_end.wait)
    waiting.start()
    burn(0.1)
    assert waiting.native_id is not None
    assert cpu_seconds_of_thread(os.getpid(), waiting.native_id) <= TICK_S
    assert cpu_seconds_of_thread(os.getpid(), threading.get_native_id()) > 0.1 - 2 * TICK_S
    may_end.set()
    waiting.join()


def test_process_and_thread_that_do_not_exist_are_errors() -> None:
    """The error is of the kind that `Metrics.watch_cpu` takes for the end of a thread."""
    with pytest.raises(psutil.NoSuchProcess):
        cpu_seconds_of(NO_PROCESS)
    with pytest.raises(OSError, match=f"process {NO_PROCESS}"):
        cpu_seconds_of_thread(NO_PROCESS, 1)
    with pytest.raises(OSError, match="has no thread 0"):
        cpu_seconds_of_thread(os.getpid(), 0)
