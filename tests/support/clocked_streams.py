"""Streams that do no work and know which work is certain to come before which.

Vector clocks: each stream knows how much of every stream's work lies behind it. What a
stream does is certain to come after all that its clock counts, and after nothing else.
"""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator

from torch import Tensor

TRAINING, ACTING = "training", "acting"


class ClockedFence:
    """Keeps the clock of the stream that marked it."""

    def __init__(self, streams: "ClockedStreams") -> None:
        self._streams = streams
        self._clock: Counter[str] = Counter()

    def mark(self) -> None:
        self._clock = self._streams.clock.copy()

    def wait(self) -> None:
        self._streams.clock |= self._clock


class ClockedStreams:
    """The streams of a GPU in a test of one thread, which names the current stream."""

    def __init__(self) -> None:
        self.current = TRAINING
        self.given: list[Tensor] = []
        """The tensors that the stream of training was told of."""
        self._clocks = {name: Counter[str]() for name in (TRAINING, ACTING)}

    @property
    def clock(self) -> Counter[str]:
        """How many pieces of each stream's work lie behind the current stream."""
        return self._clocks[self.current]

    @clock.setter
    def clock(self, clock: Counter[str]) -> None:
        self._clocks[self.current] = clock

    def work(self) -> tuple[str, int]:
        """Queues a piece of work, and returns its id."""
        self.clock[self.current] += 1
        return self.current, self.clock[self.current]

    def is_done(self, piece: tuple[str, int]) -> bool:
        """Tells whether a piece comes for certain before the current stream's next work."""
        stream, number = piece
        return self.clock[stream] >= number

    @contextlib.contextmanager
    def acting(self) -> Iterator[None]:
        self.current = ACTING
        yield
        self.current = TRAINING

    def fence(self) -> ClockedFence:
        return ClockedFence(self)

    def give_to_training(self, tensors: Iterable[Tensor]) -> None:
        self._clocks[TRAINING] |= self.clock
        self.given += tensors
