"""Bounded FIFO of fresh unrolls between inference and the trainer (V-trace).

`put` is called by the inference thread, `get` by the trainer thread, `close` by the
thread that stops the run. A full queue blocks `put`, which pauses inference: policy lag
is bounded by back-pressure and no step is thrown away.
"""

import threading
from collections import deque

from learner.concurrency.stopping import Stopped
from learner.records import Unrolls, concatenate_unrolls, select_unrolls


class UnrollQueue:
    """Takes unrolls in groups of any size, returns them in batches of exactly B."""

    def __init__(self, capacity: int) -> None:
        """`capacity` counts unrolls. One `put` may overshoot it, so that a group
        larger than the room left can never block a trainer that needs it."""
        self._capacity = capacity
        self._parts: deque[Unrolls] = deque()
        self._num_unrolls = 0
        self._closed = False
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return self._num_unrolls

    def put(self, unrolls: Unrolls) -> None:
        """Appends unrolls; blocks while the queue is full. Raises Stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._num_unrolls < self._capacity)
            if self._closed:
                raise Stopped
            self._parts.append(unrolls)
            self._num_unrolls += unrolls.num_unrolls
            self._changed.notify_all()

    def get(self, batch_size: int) -> Unrolls:
        """Returns the oldest `batch_size` unrolls; blocks for them. Raises Stopped."""
        assert batch_size <= self._capacity, "such a batch would never come together"
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._num_unrolls >= batch_size)
            if self._closed:
                raise Stopped
            parts = self._take(batch_size)
            self._changed.notify_all()
        return concatenate_unrolls(parts)

    def close(self) -> None:
        """Wakes all threads that wait; queued unrolls are dropped."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _take(self, count: int) -> list[Unrolls]:
        self._num_unrolls -= count
        taken = []
        while count:
            part = self._parts.popleft()
            if part.num_unrolls > count:
                self._parts.appendleft(select_unrolls(part, count, part.num_unrolls))
                part = select_unrolls(part, 0, count)
            taken.append(part)
            count -= part.num_unrolls
        return taken
