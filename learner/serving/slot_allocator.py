"""Which slots are free. A slot is one environment's seat on the learner.

Called by the reception, under its lock. `learner/acting/slots.py` holds the slots' contents.
"""

import heapq

import numpy as np


class SlotAllocator:
    """Hands out the lowest free slots; `high_water` is the largest number of slots ever needed."""

    def __init__(self) -> None:
        self.high_water = 0
        self._free: list[int] = []

    @property
    def num_taken(self) -> int:
        """Number of slots in use."""
        return self.high_water - len(self._free)

    def allocate(self, count: int) -> np.ndarray:
        """Returns int64 [count] slots that were free."""
        while len(self._free) < count:
            heapq.heappush(self._free, self.high_water)
            self.high_water += 1
        return np.array([heapq.heappop(self._free) for _ in range(count)], np.int64)

    def release(self, slots: np.ndarray) -> None:
        """Takes slots back; their holder must have no request in flight."""
        for slot in slots.tolist():
            heapq.heappush(self._free, slot)
