"""Limits on what the server accepts at once, so that no client can fill the learner's memory.

`PendingStreams` belongs to the server's event loop, `check_room` to the reception. The
timeouts are in `session.py`.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator

from learner.config.run_config import InferenceConfig
from seed.errors import IncompatibleError, LearnerUnavailableError, expected


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """Each limit is of one learner, except `max_pending_streams`: of each process that serves."""

    max_envs: int = InferenceConfig.max_envs
    """Environments that hold a slot: see `InferenceConfig.max_envs`."""
    max_pending_streams: int = 1000
    """Streams without a welcome so far. A silent one takes some 20 KiB, for at most
    `Timeouts.hello_s`."""


def check_room(num_envs: int, *, num_taken: int, limits: Limits) -> None:
    """Checks that an actor with `num_envs` environments finds free slots.

    Raises:
      IncompatibleError: so many environments never fit.
      LearnerUnavailableError: they do not fit now, but may fit once other actors leave. Its
        status is UNAVAILABLE, which every client retries. gRPC itself uses RESOURCE_EXHAUSTED
        for messages that are too large, where a retry does not help.
    """
    most = limits.max_envs
    if num_envs > most:
        wanted = f"at most {most} environments in all (max_envs)"
        raise IncompatibleError(expected("group_sizes", wanted, num_envs))
    if num_envs > most - num_taken:
        wanted = f"at most the {most - num_taken} environments left of {most} (max_envs)"
        raise LearnerUnavailableError(expected("group_sizes", f"{wanted} for now", num_envs))


class LogLimiter:
    """Keeps clients that connect again and again from filling the log."""

    def __init__(self, every_s: float = 10.0, now: Callable[[], float] = time.monotonic) -> None:
        self._every_s = every_s
        self._now = now
        self._due_at = -float("inf")

    def is_due(self) -> bool:
        """Returns True if `every_s` seconds have passed since it last returned True."""
        if self._now() < self._due_at:
            return False
        self._due_at = self._now() + self._every_s
        return True


class PendingStreams:
    """Counts the streams between their start and their welcome."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._num_inside = 0

    @contextlib.contextmanager
    def enter(self) -> Iterator[None]:
        """Holds a place for one stream. Raises LearnerUnavailableError if there is none."""
        most = self._limits.max_pending_streams
        if self._num_inside >= most:
            wanted = f"at most {most} streams without a welcome"
            raise LearnerUnavailableError(expected("hello", wanted, "one more"))
        self._num_inside += 1
        try:
            yield
        finally:
            self._num_inside -= 1
