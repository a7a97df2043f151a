"""Blocks of rows in a ring, and the sequences that overlap in them.

The inference thread stores (`claim`, `write`, `link`) while another thread gathers
sequences. Locks and priorities are in `replay.py`, which explains how the two threads share
the store.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from learner.experience.replay.blocks import (
    PARTS,
    Blocks,
    CompressedBlocks,
    PlainBlocks,
    Where,
    is_compressible,
    saved_shape,
)
from learner.records import INITIAL_STATE, OBSERVATIONS, STEPS, Unrolls, flatten, unflatten
from seed.errors import ConfigError, expected


class SequenceStore:
    """Rows of all environments, each held once, in a ring of blocks of `period` rows.

    A block also keeps the network's state before its first row, and is the head of one
    sequence, which goes on in the blocks that followed in the same environment:

        rows of a slot   0 1 2 3 | 4 5 6 7 | 8 9 ...        period 4, sequences of 7 rows
        headed by 0      0 1 2 3   4 5 6
        headed by 4                4 5 6 7   8 9 ...        (whole once row 11 is there)

    Blocks are numbered in the order of arrival. Number k lies at position k % num_blocks,
    where it replaces number k - num_blocks, the oldest; k // num_blocks is its *generation*.
    A sequence's other blocks are younger than its head, so the whole sequence is held while
    its head is. A sequence is named by its head's position and generation.

    Actions and versions are kept as they come, in 64 bits: a third of a percent of what an
    Atari row takes.
    """

    def __init__(
        self, *, capacity: int, num_rows: int, period: int, num_slots: int, compress: bool = False
    ) -> None:
        """Allocates rows at the first `write`, which tells their shapes.

        Args:
          capacity: sequences to hold.
          num_rows: rows of a sequence.
          period: rows of a block.
          num_slots: environments to allow for. The newest blocks of each environment head
            sequences that are not whole yet, and are held on top of the capacity. Those of
            further environments reduce the capacity.
          compress: whether blocks of bytes, which screens are, are held compressed.
        """
        self.blocks_per_sequence = math.ceil(num_rows / period)
        self.num_blocks = capacity + (self.blocks_per_sequence - 1) * num_slots
        self._num_rows = num_rows
        self._period = period
        self._compress = compress
        self._leaves: dict[str, Blocks] = {}
        self._num_claimed = 0
        # Position of the block that follows each block; any position if none follows yet.
        self._next = np.zeros(self.num_blocks, np.int64)
        # Numbers of each slot's newest blocks, the very newest last; -1 before its chain.
        self._recent = np.full((0, self.blocks_per_sequence), -1)

    def bytes_per_block(self, example: Unrolls) -> int:
        """Returns the most bytes that one more sequence takes, given unrolls [any, any, ...]
        like those to come.

        Not counted: some 50 bytes of links and priorities.
        """
        return sum(
            math.prod(self._block_shape(name, x)) * x.element_size()
            for name, x in flatten(example).items()
        )

    @property
    def held_bytes(self) -> int:
        """Bytes that the blocks written so far take."""
        return sum(blocks.held_bytes for blocks in self._leaves.values())

    def claim(self, slots: np.ndarray) -> np.ndarray:
        """Returns the positions, int64 [n], of the oldest blocks, which are given up.

        Args:
          slots: int64 [n], distinct, whose blocks will take their place.

        Raises:
          ConfigError: there are so many environments that no sequence would ever be whole.
        """
        self._admit(slots)
        numbers = self._num_claimed + np.arange(len(slots))
        self._num_claimed += len(slots)
        return numbers % self.num_blocks

    def write(self, positions: np.ndarray, unrolls: Unrolls) -> None:
        """Copies unrolls [period + 1, n], on the CPU, to claimed blocks.

        The last row of each is left out: it is the first of the slot's next block.
        """
        assert unrolls.steps.num_rows == self._period + 1, "unrolls are not as long as blocks"
        leaves = flatten(unrolls)
        if not self._leaves:
            self._leaves = {
                name: self._make_blocks(self._block_shape(name, x), x.dtype)
                for name, x in leaves.items()
            }
        start, count = int(positions[0]), len(positions)
        before_end = min(count, self.num_blocks - start)
        for name, x in leaves.items():
            # [n, ...]: whole runs, from where claiming began and, once round, from 0.
            blocks = x if _is_state(name) else x[: self._period].transpose(0, 1)
            self._leaves[name].write(start, blocks[:before_end])
            self._leaves[name].write(0, blocks[before_end:])

    def link(self, positions: np.ndarray, slots: np.ndarray, follows: np.ndarray) -> np.ndarray:
        """Joins the blocks just written to those they follow.

        Args:
          positions: int64 [n], as claimed.
          slots: int64 [n], as claimed.
          follows: bool [n]: the block goes on where the slot's last one ended.

        Returns:
          Heads, int64 [up to n], of the sequences that are whole now.
        """
        recent = self._recent[slots]
        recent[~follows] = -1
        last = recent[:, -1]
        is_held = last >= self._oldest
        self._next[last[is_held] % self.num_blocks] = positions[is_held]
        numbers = self.generations(positions) * self.num_blocks + positions
        self._recent[slots] = recent = np.column_stack([recent[:, 1:], numbers])
        first = recent[:, 0]
        return first[first >= self._oldest] % self.num_blocks

    def generations(self, positions: np.ndarray) -> np.ndarray:
        """Returns the generations, int64 [n], of the blocks claimed last at `positions`."""
        return (self._num_claimed - 1 - positions) // self.num_blocks

    def gather(self, heads: np.ndarray, *, pin_memory: bool = False) -> Unrolls:
        """Returns copies of sequences as unrolls [num_rows, B, ...].

        A sequence whose head is claimed meanwhile comes out as any mixture of rows.

        Args:
          heads: int64 [B], of whole sequences.
          pin_memory: whether to copy to page-locked memory, from which a GPU reads.
        """
        return self._gather(self._leaves, heads, pin_memory)

    def gather_outcomes(self, heads: np.ndarray) -> Unrolls:
        """As `gather`, without observations and initial state: nearly all of the bytes."""
        names = [n for n in self._leaves if not n.startswith(OBSERVATIONS) and not _is_state(n)]
        return self._gather({name: self._leaves[name] for name in names}, heads, False)

    def state_dict(self) -> dict[str, Tensor | int]:
        """Returns copies of all that is filled."""
        filled = self.num_filled
        return {
            "num_blocks": self.num_blocks,
            "num_rows": self._num_rows,
            "period": self._period,
            "num_claimed": self._num_claimed,
            "next": torch.from_numpy(self._next[:filled].copy()),
            "recent": torch.from_numpy(self._recent.copy()),
            **{
                f"{part}/{name}": x
                for name, blocks in self._leaves.items()
                for part, x in blocks.state_dict(filled).items()
            },
        }

    def load_state_dict(self, state: dict[str, Any]) -> np.ndarray:
        """Loads the `state_dict` of a store with sequences and blocks of the same length.

        That store may have held more blocks or fewer, compressed or not. If there is no room
        for all blocks, the oldest are left out. The others may then lie at other positions.

        Returns:
          int64 [n]: for each position that is filled now, where `state` has it.

        Raises:
          ValueError: blocks or sequences are of another length, or an earlier version named
            the leaves otherwise; nothing has changed.
        """
        for name, wanted in (("num_rows", self._num_rows), ("period", self._period)):
            if state.get(name) != wanted:
                raise ValueError(expected(f"replay {name}", wanted, state.get(name)))
        leaves = _by_leaf(state)
        for name in leaves:
            if not name.startswith((STEPS, INITIAL_STATE)):
                raise ValueError(expected("replay", f"leaves named {STEPS}...", name))
        order = self._load_links(state)
        for name, parts in leaves.items():
            self._leaves[name] = self._make_blocks(*saved_shape(parts))
            self._leaves[name].load_state_dict(parts, order)
        return order

    def _load_links(self, state: dict[str, Any]) -> np.ndarray:
        """Loads the blocks' numbers and links; returns where `state` has each block."""
        num_claimed, num_blocks = state["num_claimed"], state["num_blocks"]
        recent, following = state["recent"].numpy().copy(), state["next"].numpy()
        if num_blocks == self.num_blocks:
            order = np.arange(len(following))
        else:
            # The oldest block that is kept becomes number 0, at position 0.
            num_kept = min(len(following), self.num_blocks)
            shift = num_claimed - num_kept
            order = (shift + np.arange(num_kept)) % num_blocks
            new_position = np.zeros(num_blocks, np.int64)
            new_position[order] = np.arange(num_kept)
            following = new_position[following]
            # Chains end here, as they do when actors reconnect.
            num_claimed, recent = num_kept, recent[:0]
        self._num_claimed, self._recent = num_claimed, recent
        self._next[: len(order)] = following[order]
        return order

    @property
    def num_filled(self) -> int:
        """Blocks that have been claimed at least once: the first positions."""
        return min(self._num_claimed, self.num_blocks)

    @property
    def _oldest(self) -> int:
        """Smallest number of a block that is held; -1 is below it."""
        return max(self._num_claimed - self.num_blocks, 0)

    def _admit(self, slots: np.ndarray) -> None:
        """Makes room for `slots` in the table of chains."""
        added = int(slots.max()) + 1 - len(self._recent)
        if added > 0:
            fresh = np.full((added, self.blocks_per_sequence), -1)
            self._recent = np.concatenate([self._recent, fresh])
        num_new = np.count_nonzero(self._recent[slots, -1] < 0)
        if num_new:
            self._check_room(int(np.count_nonzero(self._recent[:, -1] >= 0) + num_new))

    def _check_room(self, num_slots: int) -> None:
        # Between the head and the last block of a sequence, all environments add blocks in turn.
        needed = max((self.blocks_per_sequence - 1) * num_slots + 1, num_slots)
        if needed > self.num_blocks:
            wanted = f"room for {num_slots} environments, {needed} blocks of {self._period} rows"
            raise ConfigError(expected("replay_capacity", wanted, f"{self.num_blocks} blocks"))

    def _block_shape(self, name: str, unrolled: Tensor) -> tuple[int, ...]:
        """Returns the shape of a block of a leaf [rows, n, ...], or [n, ...] if it is a state."""
        if _is_state(name):
            return tuple(unrolled.shape[1:])
        return (self._period, *unrolled.shape[2:])

    def _make_blocks(self, shape: tuple[int, ...], dtype: torch.dtype) -> Blocks:
        if self._compress and is_compressible(dtype):
            return CompressedBlocks(self.num_blocks, shape)
        return PlainBlocks(self.num_blocks, shape, dtype)

    def _gather(self, leaves: dict[str, Blocks], heads: np.ndarray, pin_memory: bool) -> Unrolls:
        where = self._where(heads)
        gathered = {}
        for name, blocks in leaves.items():
            gather = blocks.gather_heads if _is_state(name) else blocks.gather_rows
            gathered[name] = gather(where, pin_memory=pin_memory)
        return unflatten(gathered)

    def _where(self, heads: np.ndarray) -> Where:
        blocks = [heads]
        for _ in range(self.blocks_per_sequence - 1):
            blocks.append(self._next[blocks[-1]])
        return Where(np.stack(blocks), self._num_rows)


def _is_state(name: str) -> bool:
    return name.startswith(INITIAL_STATE)


def _by_leaf(state: dict[str, Any]) -> dict[str, dict[str, Tensor]]:
    """Returns the leaves of a saved store, by name and part."""
    leaves: dict[str, dict[str, Tensor]] = {}
    for key, x in state.items():
        part, _, name = key.partition("/")
        if part in PARTS:
            leaves.setdefault(name, {})[part] = x
    return leaves
