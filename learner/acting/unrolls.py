"""Steps -> unrolls of T + 1 rows. Called by the inference thread alone.

The life of a row: `append` writes it into its slot's open unroll. When that holds
T + 1 rows it is copied out for the trainer, and its last row becomes the first row
of the slot's next unroll:

    rows of a slot   0  1  2  3  4  5  6  7  8 ...          T = 4
    unroll 0         0  1  2  3  4
    unroll 1                     4  5  6  7  8

The network's state before row 0 and before row 4 is kept with them. Slots fill
independently, so any mix of actors may share a batch. An actor that leaves stops
appending; `begin` discards its partial unroll when its slot is used again.

Environments that step together would also complete their unrolls together. Such a burst
fills the queue, stalls acting, and grows stale in the queue. So slots start out of phase,
in blocks of one batch. After an actor joins, a block skips its first rows, fewer than T.
The numbers of skipped rows spread evenly over any number of blocks.
"""

import numpy as np
import torch

from learner.acting.rows import RowTable, row_indices
from learner.records import Completed, State, Unrolls, index_unrolls, map_tensors, tensors_of


class UnrollStore:
    """Appends steps to the open unrolls of all slots, and returns the full ones."""

    def __init__(self, unroll_length: int, device: torch.device, *, block_size: int) -> None:
        """Slots of one block of `block_size` start in phase, blocks do not; 0: all slots do."""
        self._num_rows = unroll_length + 1
        self._block_size = block_size
        self._device = device
        self._capacity = 0
        # Row that each slot writes next, in [0, T + 1); negative while the slot skips rows.
        # Kept on the host, so that finding the full unrolls does not wait for the device.
        self._cursors = np.zeros(0, np.int64)
        self._has_emitted = np.zeros(0, bool)  # since an actor took the slot
        self._open: _OpenUnrolls | None = None

    def grow(self, capacity: int) -> None:
        """Makes room for slots below `capacity`; open unrolls stay."""
        added = capacity - self._capacity
        if added <= 0:
            return
        self._cursors = np.concatenate([self._cursors, np.zeros(added, np.int64)])
        self._has_emitted = np.concatenate([self._has_emitted, np.zeros(added, bool)])
        if self._open is not None:
            self._open = self._open.grown(capacity)
        self._capacity = capacity

    def begin(self, slots: np.ndarray) -> None:
        """Discards the open unrolls of `slots`: a new actor holds these slots."""
        self._cursors[slots] = 0
        self._has_emitted[slots] = False
        if self._block_size:
            phases = van_der_corput(slots // self._block_size)
            self._cursors[slots] = -(phases * (self._num_rows - 1)).astype(np.int64)

    def append(self, slots: np.ndarray, step: Unrolls) -> Completed | None:
        """Stores one row of each of N slots; returns the unrolls that are now full.

        Args:
          slots: int64 [N], distinct.
          step: one row, tensors [1, N, ...], with the network's state before it
            as `initial_state` [N, ...].

        Returns:
          Unrolls [T + 1, n] that share no memory with the store, or None if none is full.
        """
        if self._open is None:
            self._open = _OpenUnrolls.like(step, self._num_rows, self._capacity)
        cursors = self._cursors[slots]
        self._cursors[slots] = cursors + 1
        if cursors.min() < 0:
            kept = np.flatnonzero(cursors >= 0)
            slots, cursors = slots[kept], cursors[kept]
            step = index_unrolls(step, row_indices(kept, self._device))
        self._write(self._open, slots, cursors, step)
        full = slots[cursors + 1 == self._num_rows]
        return self._emit(self._open, full) if len(full) else None

    def _write(
        self, held: "_OpenUnrolls", slots: np.ndarray, cursors: np.ndarray, step: Unrolls
    ) -> None:
        where = row_indices(cursors * self._capacity + slots, self._device)
        held.rows.write(where, tensors_of(step.steps))
        for row, states in ((0, held.states), (self._num_rows - 1, held.next_states)):
            chosen = np.flatnonzero(cursors == row)
            if len(chosen):
                which = row_indices(chosen, self._device)
                values = [x.index_select(0, which) for x in tensors_of(step.initial_state)]
                states.write(row_indices(slots[chosen], self._device), values)

    def _emit(self, held: "_OpenUnrolls", full: np.ndarray) -> Completed:
        slots = row_indices(full, self._device)
        unrolls = index_unrolls(held.records, slots)
        # The last row is also the first of the next unroll.
        held.rows.move(slots + (self._num_rows - 1) * self._capacity, slots)
        held.states.write(slots, held.next_states.read(slots))
        self._cursors[full] = 1
        completed = Completed(unrolls, full, self._has_emitted[full])
        self._has_emitted[full] = True
        return completed


class _OpenUnrolls:
    """The memory of an `UnrollStore`, and its tensors as tables of rows."""

    def __init__(self, records: Unrolls, next_initial_state: State) -> None:
        """Takes records [T + 1, capacity], and the states of their last rows."""
        self.records = records
        self._next_initial_state = next_initial_state
        self.rows = RowTable([x.flatten(0, 1) for x in tensors_of(records.steps)])
        """Row t of slot s is number t * capacity + s."""
        self.states = RowTable(tensors_of(records.initial_state))
        """The network's state before row 0 of every slot."""
        self.next_states = RowTable(tensors_of(next_initial_state))
        """The network's state before row T, with which the slot's next unroll begins."""

    @classmethod
    def like(cls, step: Unrolls, num_rows: int, capacity: int) -> "_OpenUnrolls":
        """Returns room for unrolls of `num_rows` rows that are shaped as `step` [1, ...]."""

        def states() -> State:
            return {k: x.new_zeros((capacity, *x.shape[1:])) for k, x in step.initial_state.items()}

        steps = map_tensors(lambda x: x.new_zeros((num_rows, capacity, *x.shape[2:])), step.steps)
        return cls(Unrolls(steps, states()), states())

    def grown(self, capacity: int) -> "_OpenUnrolls":
        """Returns the same unrolls with room for `capacity` slots."""
        held, size = self.records, self.records.num_unrolls
        larger = self.like(held, held.steps.num_rows, capacity)
        map_tensors(lambda new, old: new[:, :size].copy_(old), larger.records.steps, held.steps)
        for new, old in (
            (larger.records.initial_state, held.initial_state),
            (larger._next_initial_state, self._next_initial_state),
        ):
            map_tensors(lambda x, y: x[:size].copy_(y), new, old)
        return larger


def van_der_corput(indices: np.ndarray) -> np.ndarray:
    """Returns 0, 1/2, 1/4, 3/4, 1/8, ...: float64, even on [0, 1) for any prefix.

    The bits of an index are mirrored at the binary point.
    """
    fractions = np.zeros(indices.shape)
    weight = 0.5
    while indices.any():
        fractions += weight * (indices & 1)
        indices, weight = indices >> 1, weight / 2
    return fractions
