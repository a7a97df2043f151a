"""Steps -> unrolls of T + 1 rows. Called by the inference thread alone.

The life of a row: `append` writes it into its slot's open unroll. When that holds
T + 1 rows it is copied out for the trainer, and its last row becomes the first row
of the slot's next unroll:

    rows of a slot   0  1  2  3  4  5  6  7  8 ...          T = 4
    unroll 0         0  1  2  3  4
    unroll 1                     4  5  6  7  8

The network's state before row 0 and before row 4 is kept for them. Slots fill
independently, so any mix of actors may share a batch. An actor that leaves simply
stops appending; `begin` discards what it left when its slot is used again.

Environments that step together would also complete their unrolls together: a burst
that fills the queue, stalls everybody, and grows stale in it. So slots start out of
phase, in blocks of one batch: a block leaves out its first rows after an actor joins,
fewer than T, by a sequence that is even for any number of blocks.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from learner.records import State, Unrolls, index_unrolls, map_tensors
from learner.rows import write_rows


class Completed(NamedTuple):
    """Unrolls that are full, and where in the environments' streams they belong."""

    unrolls: Unrolls
    """[T + 1, n]."""
    slots: np.ndarray
    """int64 [n]."""
    follows: np.ndarray
    """bool [n]: the unroll begins where the slot's last one ended; False where an actor
    took the slot since."""


class UnrollStore:
    """Open unrolls of all slots: tensors [(T + 1) * capacity, ...] on the device."""

    def __init__(self, unroll_length: int, device: torch.device, *, block_size: int) -> None:
        """`block_size` neighbouring slots start in phase, blocks do not; 0: all do."""
        self._num_rows = unroll_length + 1
        self._block_size = block_size
        self._device = device
        self._capacity = 0
        # Row that each slot writes next, in [0, T + 1); negative while it leaves rows
        # out. Kept on the host: which unrolls are full is known without asking the
        # device.
        self._cursors = np.zeros(0, np.int64)
        self._has_emitted = np.zeros(0, bool)  # since an actor took the slot
        self._records: Unrolls | None = None
        self._next_initial_state: State = {}

    def grow(self, capacity: int) -> None:
        """Makes room for slots below `capacity`; open unrolls stay."""
        added = capacity - self._capacity
        if added <= 0:
            return
        self._cursors = np.concatenate([self._cursors, np.zeros(added, np.int64)])
        self._has_emitted = np.concatenate([self._has_emitted, np.zeros(added, bool)])
        if self._records is not None:
            self._allocate(_first_row(self._records), capacity)
        self._capacity = capacity

    def begin(self, slots: np.ndarray) -> None:
        """Discards the open unrolls of `slots`: a new actor sits there."""
        self._cursors[slots] = 0
        self._has_emitted[slots] = False
        if self._block_size:
            phases = van_der_corput(slots // self._block_size)
            self._cursors[slots] = -(phases * (self._num_rows - 1)).astype(np.int64)

    def append(self, slots: np.ndarray, step: Unrolls) -> Completed | None:
        """Stores one row of each of N slots; returns the unrolls this completes.

        Args:
          slots: int64 [N], distinct.
          step: one row, tensors [1, N, ...], with the network's state before it
            as `initial_state` [N, ...].

        Returns:
          Unrolls [T + 1, n] that share no memory with the store, or None if none is full.
        """
        if self._records is None:
            self._allocate(step, self._capacity)
        cursors = self._cursors[slots]
        self._cursors[slots] = cursors + 1
        if cursors.min() < 0:
            kept = np.flatnonzero(cursors >= 0)
            slots, cursors = slots[kept], cursors[kept]
            step = index_unrolls(step, self._to_device(kept))
        self._write(slots, cursors, step)
        full = slots[cursors + 1 == self._num_rows]
        return self._emit(full) if len(full) else None

    def _write(self, slots: np.ndarray, cursors: np.ndarray, step: Unrolls) -> None:
        assert self._records is not None
        flat = self._to_device(cursors * self._capacity + slots)
        stateless = self._records._replace(initial_state={})
        map_tensors(
            lambda held, row: write_rows(held.flatten(0, 1), flat, row.squeeze(0)),
            stateless,
            step._replace(initial_state={}),
        )
        this, following = self._records.initial_state, self._next_initial_state
        for row, states in ((0, this), (self._num_rows - 1, following)):
            chosen = np.flatnonzero(cursors == row)
            if len(chosen):
                self._keep_states(states, slots[chosen], step.initial_state, chosen)

    def _keep_states(
        self, states: State, slots: np.ndarray, step_state: State, chosen: np.ndarray
    ) -> None:
        where, which = self._to_device(slots), self._to_device(chosen)
        for name, held in states.items():
            write_rows(held, where, step_state[name].index_select(0, which))

    def _emit(self, full: np.ndarray) -> Completed:
        assert self._records is not None
        slots = self._to_device(full)
        unrolls = index_unrolls(self._records, slots)
        stateless = self._records._replace(initial_state={})
        # The last row is also the first of the next unroll.
        map_tensors(lambda x: write_rows(x[0], slots, x[-1].index_select(0, slots)), stateless)
        for name, held in self._records.initial_state.items():
            following = self._next_initial_state[name]
            write_rows(held, slots, following.index_select(0, slots))
        self._cursors[full] = 1
        completed = Completed(unrolls, full, self._has_emitted[full])
        self._has_emitted[full] = True
        return completed

    def _allocate(self, like: Unrolls, capacity: int) -> None:
        """Makes records of `capacity` slots shaped as `like`; copies over what is open."""
        held, num_rows = self._records, self._num_rows
        stateless = like._replace(initial_state={})
        records = map_tensors(lambda x: x.new_zeros((num_rows, capacity, *x.shape[2:])), stateless)

        def states() -> State:
            return {k: x.new_zeros((capacity, *x.shape[1:])) for k, x in like.initial_state.items()}

        next_initial = states()
        records = records._replace(initial_state=states())
        self._records = records
        if held is not None:
            size = self._capacity
            map_tensors(
                lambda new, old: new[:, :size].copy_(old),
                records._replace(initial_state={}),
                held._replace(initial_state={}),
            )
            held_states = (held.initial_state, self._next_initial_state)
            for new, old in zip((records.initial_state, next_initial), held_states, strict=True):
                map_tensors(lambda x, y: x[:size].copy_(y), new, old)
        self._next_initial_state = next_initial

    def _to_device(self, indices: np.ndarray) -> Tensor:
        return torch.from_numpy(indices).to(self._device, non_blocking=True)


def van_der_corput(indices: np.ndarray) -> np.ndarray:
    """Returns 0, 1/2, 1/4, 3/4, 1/8, ...: float64, even on [0, 1) for any prefix.

    The bits of an index, mirrored at the binary point.
    """
    fractions = np.zeros(indices.shape)
    weight = 0.5
    while indices.any():
        fractions += weight * (indices & 1)
        indices, weight = indices >> 1, weight / 2
    return fractions


def _first_row(records: Unrolls) -> Unrolls:
    return map_tensors(lambda x: x[:1], records._replace(initial_state={}))._replace(
        initial_state=records.initial_state
    )
