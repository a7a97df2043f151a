"""Streams that do nothing but know what is certain to have been done before what.

Vector clocks: each stream knows how much of every stream's work lies behind it. What a
stream does is certain to come after all that its clock counts, and after nothing else.
"""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator

from torch import Tensor

TRAINING, ACTING = "training", "acting"


class ClockedFence:
    """Knows what lay behind it when it was marked."""

    def __init__(self, streams: "ClockedStreams") -> None:
        self._streams = streams
        self._clock: Counter[str] = Counter()

    def mark(self) -> None:
        self._clock = self._streams.clock.copy()

    def wait(self) -> None:
        self._streams.clock |= self._clock


class ClockedStreams:
    """Those of a GPU in a test of one thread, which says whose stream it is on."""

    def __init__(self) -> None:
        self.current = TRAINING
        self.given: list[Tensor] = []
        """What the stream of training was told of."""
        self._clocks = {name: Counter[str]() for name in (TRAINING, ACTING)}

    @property
    def clock(self) -> Counter[str]:
        """Of the present stream: how many pieces of each stream's work lie behind it."""
        return self._clocks[self.current]

    @clock.setter
    def clock(self, clock: Counter[str]) -> None:
        self._clocks[self.current] = clock

    def work(self) -> tuple[str, int]:
        """Queues a piece of work; returns what it is to be known by."""
        self.clock[self.current] += 1
        return self.current, self.clock[self.current]

    def is_done(self, piece: tuple[str, int]) -> bool:
        """Tells whether it is certain to come before what the present stream does next."""
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
