"""Function calls between two processes over a pipe, one at a time.

Each process serves one pipe and calls through another, so that both may call at any
moment. The processes are parent and child, and each trusts what the other sends.
"""

import threading
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any, ClassVar

from learner.concurrency.stopping import Stopped
from seed.errors import SeedError


class OtherProcessError(Exception):
    """An exception of the other process: its traceback, as text."""


class CallPickler(ForkingPickler):
    """Writes what a call or its answer carries. `learner.concurrency.shared_tensors` adds tensors.

    This module is also used where torch must not be imported.
    """

    reducers: ClassVar[dict[type, Callable[[Any], Any]]] = {}
    """For each exact type a function that returns what `__reduce__` would."""

    def reducer_override(self, value: Any) -> Any:
        reducer = self.reducers.get(type(value))
        return NotImplemented if reducer is None else reducer(value)


class Caller:
    """Calls the functions that the other end serves. Thread-safe."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def __call__(self, name: str, *arguments: Any) -> Any:
        """Returns what the other process returns.

        Raises:
          SeedError: the other process raised it.
          OtherProcessError: the other process raised another exception.
          Stopped: the other process has ended.
        """
        with self._lock:
            try:
                self._connection.send_bytes(CallPickler.dumps((name, arguments)))
                value, error = self._connection.recv()
            except (EOFError, OSError) as broken:
                raise Stopped from broken
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        """Tells the other end that no more calls will come."""
        self._connection.close()


def serve_calls(connection: Connection, functions: Mapping[str, Callable[..., Any]]) -> None:
    """Answers calls until the other end closes or its process ends."""
    while True:
        try:
            name, arguments = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer = (functions[name](*arguments), None)
        except BaseException as error:
            answer = (None, portable(error))
        try:
            connection.send_bytes(CallPickler.dumps(answer))
        except OSError:
            return


def portable(error: BaseException) -> Exception:
    """Returns `error` in a form that the other process can raise."""
    if isinstance(error, SeedError | OtherProcessError):
        return error
    return OtherProcessError("".join(traceback.format_exception(error)).rstrip())
