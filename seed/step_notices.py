"""Short records sent through a pipe: which group's memory holds a new step, or its answer.

The two ends agree on the numbers of the groups. If the actor is one end, these are the actor's
own numbers. Else a group's number is its first slot, which is unique while the actor stays.
"""

import os
import struct
from collections.abc import Iterable, Sequence
from select import PIPE_BUF
from typing import Any, NamedTuple

_READ_BYTES = 64 * 1024


class StepNotice(NamedTuple):
    """A group's step has been written."""

    group: int
    num_episodes: int
    submitted_at: float
    """Seconds on the monotonic clock, which all processes of a machine share."""
    is_session_start: bool


class AnswerNotice(NamedTuple):
    """A group's actions have been written."""

    group: int


class NoticePipe:
    """Writes and reads records of one kind.

    Records stay whole: a pipe takes up to PIPE_BUF bytes at once or not at all, so its
    contents end with a complete record.
    """

    def __init__(self, form: str) -> None:
        """`form` describes a record in the notation of `struct`."""
        self._record = struct.Struct(form)
        self._most = PIPE_BUF // self._record.size
        self._read_bytes = _READ_BYTES // self._record.size * self._record.size

    def write(self, descriptor: int, notices: Sequence[tuple[Any, ...]]) -> None:
        """Writes records; waits while the pipe is full. Raises BrokenPipeError."""
        for start in range(0, len(notices), self._most):
            chunk = notices[start : start + self._most]
            os.write(descriptor, b"".join(self._record.pack(*notice) for notice in chunk))

    def read(self, descriptor: int) -> Iterable[tuple[Any, ...]]:
        """Waits for records and returns all in the pipe; none once the other end is closed."""
        return list(self._record.iter_unpack(os.read(descriptor, self._read_bytes)))


STEPS = NoticePipe("<qqd?")
ANSWERS = NoticePipe("<q")
