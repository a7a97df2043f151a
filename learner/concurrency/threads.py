"""Threads that cannot die unnoticed."""

import sys
import threading
from collections.abc import Callable

import torch

from learner.concurrency.priority import let_others_go_first


def start_thread(
    name: str,
    target: Callable[[], None],
    on_failure: Callable[[BaseException], None],
    *,
    niceness: int = 0,
) -> threading.Thread:
    """Starts `target` on a thread; what it raises goes to `on_failure`, called there.

    Where cores are short, threads of greater `niceness` let the others go first (Linux;
    elsewhere threads have no priority of their own).
    """
    num_threads = torch.get_num_threads()

    def run() -> None:
        # A new thread's first operations would otherwise use every core.
        torch.set_num_threads(num_threads)
        if niceness and sys.platform == "linux":
            let_others_go_first(threading.get_native_id(), niceness)
        try:
            target()
        except BaseException as error:
            on_failure(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
