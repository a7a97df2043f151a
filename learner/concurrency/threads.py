"""Threads that cannot die unnoticed."""

import threading
from collections.abc import Callable

import torch

from learner.concurrency.priority import let_other_threads_go_first


def start_thread(
    name: str,
    target: Callable[[], None],
    on_failure: Callable[[BaseException], None],
    *,
    niceness: int = 0,
) -> threading.Thread:
    """Starts `target` on a thread, which calls `on_failure` with the exception that it raises.

    On Linux the thread gets at least this `niceness`: where cores are short, the others go first.
    """
    num_threads = torch.get_num_threads()

    def run() -> None:
        # A new thread's first operations would otherwise use every core.
        torch.set_num_threads(num_threads)
        if niceness:
            let_other_threads_go_first(niceness)
        try:
            target()
        except BaseException as error:
            on_failure(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
