"""Slots: one environment's seat on the learner.

`SlotAllocator` says who sits where; it lives on the server's event loop.
`SlotStates` holds what a seat carries from step to step, on the device; it
belongs to the inference thread. Seats are never moved, so an index stays good
for as long as its actor stays connected.
"""

import heapq
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from learner.acting.rows import RowTable
from learner.records import State


class SlotAllocator:
    """Hands out the lowest free slots; `high_water` is the capacity ever needed."""

    def __init__(self) -> None:
        self.high_water = 0
        self._free: list[int] = []

    @property
    def num_taken(self) -> int:
        """Slots that somebody holds."""
        return self.high_water - len(self._free)

    def allocate(self, count: int) -> np.ndarray:
        """Returns int64 [count] slots that nobody holds."""
        while len(self._free) < count:
            heapq.heappush(self._free, self.high_water)
            self.high_water += 1
        return np.array([heapq.heappop(self._free) for _ in range(count)], np.int64)

    def release(self, slots: np.ndarray) -> None:
        """Takes slots back; their holder must have no request in flight."""
        for slot in slots.tolist():
            heapq.heappush(self._free, slot)


class SlotStates:
    """The network's state and the last action of every slot, tensors [capacity, ...]."""

    def __init__(
        self, initial_state: Callable[[int, torch.device], State], device: torch.device
    ) -> None:
        self._initial_state = initial_state
        self._device = device
        self.capacity = 0
        self._state: State = initial_state(0, device)
        self._last_actions = torch.zeros(0, dtype=torch.int64, device=device)
        self._table = RowTable([*self._state.values(), self._last_actions])

    def grow(self, capacity: int) -> None:
        """Makes room for slots below `capacity`; what is held stays."""
        added = capacity - self.capacity
        if added <= 0:
            return
        fresh = self._initial_state(added, self._device)
        self._state = {name: torch.cat([self._state[name], fresh[name]]) for name in fresh}
        self._last_actions = torch.cat([self._last_actions, self._last_actions.new_zeros(added)])
        self._table = RowTable([*self._state.values(), self._last_actions])
        self.capacity = capacity

    def gather(self, slots: Tensor) -> tuple[State, Tensor]:
        """Returns copies of (state [N, ...], last actions [N]) of int64 [N] slots.

        A slot whose new holder has not acted yet gives its predecessor's: networks
        start anew wherever `is_first`, which the first row always is.
        """
        *state, last_actions = self._table.read(slots)
        return dict(zip(self._state, state, strict=True)), last_actions

    def scatter(self, slots: Tensor, state: State, actions: Tensor) -> None:
        """Stores the state after a row and the action chosen at it."""
        self._table.write(slots, [*(state[name] for name in self._state), actions])
