"""The wish of a user or a supervisor that the process ends: SIGTERM or Ctrl-C.

Made and read by the main thread of a process that runs a learner.
"""

import signal
from types import TracebackType
from typing import Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Whether SIGTERM or Ctrl-C has come since it was made.

    A plain attribute: a handler that took a lock could meet the main thread holding it. As a
    context it gives the signals back to their former handlers at its end.
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
