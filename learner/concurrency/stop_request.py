"""Whether the process is asked to end: by SIGTERM, Ctrl-C, or a terminal that is closed (SIGHUP).

Made and read by the main thread of a process that runs a learner.
"""

import signal
from types import TracebackType
from typing import Self

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequest:
    """Whether one of the signals has come since this object was made.

    An ignored SIGHUP stays ignored: `nohup` starts a process so. Ctrl-C is not treated so, because
    a shell that starts a process in the background makes it ignore SIGINT.

    A plain attribute holds the answer: a handler that took a lock could interrupt the main
    thread while that thread holds it. Leaving the context restores the former signal handlers.
    """

    def __init__(self) -> None:
        self.requested = False
        numbers = [number for number in STOP_SIGNALS if not _is_ignored_hangup(number)]
        self._former = {number: signal.signal(number, self._request) for number in numbers}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def _request(self, *_: object) -> None:
        self.requested = True


def _is_ignored_hangup(number: signal.Signals) -> bool:
    return number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN
