"""The wish of a user or a supervisor that the process ends: SIGTERM or Ctrl-C.

Made and read by the main thread of `seed learner`, `seed train` and `seed eval`.
"""

import signal


class StopRequest:
    """Whether SIGTERM or Ctrl-C has come.

    A plain attribute: a handler that took a lock could meet the main thread holding it.
    """

    def __init__(self) -> None:
        self.requested = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._request)

    def _request(self, *_: object) -> None:
        self.requested = True
