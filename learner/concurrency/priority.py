"""Niceness of processes and threads where they share the cores of one machine."""

import os
import sys
import threading

import psutil

# Niceness of acting and of local actors, so that training goes first. They wait for training
# in any case, and catch up while training waits for them.
SHARED_CORE_NICENESS = 10


def let_others_go_first(pid: int, niceness: int) -> None:
    """Raises a process's niceness to at least `niceness`. Never lowers it: that takes privileges.

    Windows has no niceness: there the process goes below the normal priority.
    """
    process = psutil.Process(pid)
    if sys.platform == "win32":
        process.nice(psutil.BELOW_NORMAL_PRIORITY_CLASS)
    else:
        process.nice(max(niceness, process.nice()))


def let_other_threads_go_first(niceness: int) -> None:
    """Raises the niceness of the calling thread alone, on Linux.

    Elsewhere a thread has no niceness of its own, and nothing happens.
    """
    if sys.platform == "linux":
        thread_id = threading.get_native_id()
        least = os.getpriority(os.PRIO_PROCESS, thread_id)
        os.setpriority(os.PRIO_PROCESS, thread_id, max(niceness, least))
