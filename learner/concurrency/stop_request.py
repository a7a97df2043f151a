"""Whether a user or a supervisor has asked the process to end, by SIGTERM or Ctrl-C.

Made and read by the main thread of a process that runs a learner.
"""

import signal
from types import TracebackType
from typing import Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Whether SIGTERM or Ctrl-C has come since this object was made.

    A plain attribute holds the answer: a handler that took a lock could interrupt the main
    thread while that thread holds it. Leaving the context restores the former signal handlers.
    """

    def __init__(self) -> None:
        self.requested = False
        self._former = {number: signal.signal(number, self._request) for number in _SIGNALS}

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
