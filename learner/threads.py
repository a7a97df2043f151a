"""Threads that cannot die unnoticed."""

import threading
from collections.abc import Callable


def start_thread(
    name: str, target: Callable[[], None], on_failure: Callable[[BaseException], None]
) -> threading.Thread:
    """Starts `target` on a thread; what it raises goes to `on_failure`, called there."""

    def run() -> None:
        try:
            target()
        except BaseException as error:
            on_failure(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
