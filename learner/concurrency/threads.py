"""Threads whose failure is always reported."""

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
    """Starts `target` on a thread; the thread calls `on_failure` with an exception of `target`.

    On Linux the thread gets at least this `niceness`: other threads go first where cores are short.
    """
    num_threads = torch.get_num_threads()

    def run() -> None:
        # By default the first tensor operations of a new thread would use every core.
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
