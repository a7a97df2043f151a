"""The state that each slot keeps between steps, on the device. Belongs to the inference thread.

A slot is one environment's seat on the learner. Slots are never moved, so an index stays valid
as long as its actor stays connected.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from learner.acting.rows import RowTable
from learner.records import State


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
        """Makes room for slots below `capacity`; the contents stay."""
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

        Until a slot's new actor has acted, the slot holds its predecessor's state. Networks
        ignore it: they reset the state at each `is_first` row, and an actor's first row is one.
        """
        *state, last_actions = self._table.read(slots)
        return dict(zip(self._state, state, strict=True)), last_actions

    def scatter(self, slots: Tensor, state: State, actions: Tensor) -> None:
        """Stores the state after a row and the action chosen at it."""
        self._table.write(slots, [*(state[name] for name in self._state), actions])
