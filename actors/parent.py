"""What a process does for the process that started it: ends with it, and tells of its first step.

Used by an actor that `seed train` or `seed eval` starts, and by environment workers.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable

import numpy as np

from actors.loop import PolicyConnection
from seed.wire import EnvOutputs

_POLL_S = 1.0

# How long the environments may take to close after the parent has ended.
_CLOSE_GRACE_S = 10.0


def end_with(parent: int) -> None:
    """Ends this process once the process `parent` has ended, also by kill -9.

    The process gets SIGTERM. If it does not end, because an environment hangs, it is killed, and
    with it the processes of its group if the group is its own.

    `parent` is given by its id, because it may end before this process can ask for it.
    """

    def end() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_CLOSE_GRACE_S)
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    when_ended(parent, end)


def when_ended(parent: int, do: Callable[[], None]) -> None:
    """Calls `do` on a thread of its own once the process `parent` is no longer the parent."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_S)
        do()

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


class FirstStepTold:
    """A connection to a learner that writes to a pipe once the environments have made a step.

    A parent process sees by it whether an actor that was killed had worked before.
    """

    def __init__(self, connection: PolicyConnection, descriptor: int) -> None:
        self._connection = connection
        self._descriptor = descriptor
        self._is_answered = False
        self._is_told = False

    def send(self, outputs: EnvOutputs) -> None:
        """See `PolicyConnection`. What is sent after an answer comes from a step."""
        self._connection.send(outputs)
        if self._is_answered and not self._is_told:
            self._is_told = True
            with contextlib.suppress(OSError):  # the parent has ended, or never listened
                os.write(self._descriptor, b"1")

    def receive(self) -> tuple[int, np.ndarray]:
        """See `PolicyConnection`."""
        answer = self._connection.receive()
        self._is_answered = True
        return answer
