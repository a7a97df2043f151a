"""The blocks of one leaf in memory: as they are, or compressed.

Used only by `learner/experience/replay/sequence_store.py`, which names the threads. One thread
writes while another gathers; a block that is written meanwhile may come out old, new or mixed.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
import torch
import zstandard
from torch import Tensor

# A fast level: 9 takes four times as long or more, for 1 kB less of a block of 564
# (docs/replay.md has the table).
_LEVEL = 1
# Memory of a compressed block beside its bytes: Python's object and its place in the list.
_OBJECT_BYTES = 41

# Names of these parts in a checkpoint.
_PLAIN, _PACKED, _LENGTHS, _SHAPE = "arrays", "packed", "lengths", "shapes"
PARTS = (_PLAIN, _PACKED, _LENGTHS, _SHAPE)


class Where(NamedTuple):
    """Where the rows of sequences lie."""

    blocks: np.ndarray
    """int64 [k, B]: the positions of each sequence's blocks, its head first."""
    num_rows: int
    """Rows of a sequence: all rows of its first k - 1 blocks, the rest from the last."""

    def rows(self, period: int) -> Tensor:
        """Returns each row's place among the rows of all blocks, int64 [num_rows * B]."""
        block, row = np.divmod(np.arange(self.num_rows), period)
        return torch.from_numpy((self.blocks[block] * period + row[:, np.newaxis]).ravel())


class Blocks(Protocol):
    """All blocks of one leaf, by position."""

    @property
    def held_bytes(self) -> int:
        """Bytes that the blocks written so far take."""
        ...

    def write(self, start: int, blocks: Tensor) -> None:
        """Copies blocks [n, *shape] to positions start, start + 1, ..."""
        ...

    def gather_rows(self, where: Where, *, pin_memory: bool) -> Tensor:
        """Returns [num_rows, B, ...] of blocks that are [period, ...] each."""
        ...

    def gather_heads(self, where: Where, *, pin_memory: bool) -> Tensor:
        """Returns the first block of each sequence, [B, *shape]."""
        ...

    def state_dict(self, num_filled: int) -> dict[str, Tensor]:
        """Returns copies of the blocks at the first `num_filled` positions."""
        ...

    def load_state_dict(self, state: dict[str, Tensor], order: np.ndarray) -> None:
        """Loads into position i the block that `state`, of either kind, has at `order[i]`."""
        ...


class PlainBlocks:
    """Blocks in one tensor [num_blocks, *shape]."""

    def __init__(self, num_blocks: int, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        # Not zeroed, so that the system hands out memory only as the ring fills.
        self._held = torch.empty((num_blocks, *shape), dtype=dtype)
        self._num_filled = 0

    @property
    def held_bytes(self) -> int:
        return self._num_filled * math.prod(self._held.shape[1:]) * self._held.element_size()

    def write(self, start: int, blocks: Tensor) -> None:
        end = start + len(blocks)
        self._held[start:end].copy_(blocks)
        self._num_filled = max(self._num_filled, end)

    def gather_rows(self, where: Where, *, pin_memory: bool) -> Tensor:
        # Row by row is as fast as run by run: 64 sequences of 121 Atari frames, 55 MB in
        # warm memory, take 6.6 ms with index_select or np.take and 5.8 ms as 128 strided
        # copies; a plain memcpy takes 4.5 ms, NumPy's fancy indexing 16 ms.
        # index_select also lets other threads run.
        rows = where.rows(self._held.shape[1])
        selected = self._select(self._held.flatten(0, 1), rows, pin_memory)
        return selected.unflatten(0, (where.num_rows, -1))

    def gather_heads(self, where: Where, *, pin_memory: bool) -> Tensor:
        return self._select(self._held, torch.from_numpy(where.blocks[0]), pin_memory)

    def state_dict(self, num_filled: int) -> dict[str, Tensor]:
        filled = self._held[:num_filled]
        return {_PLAIN: empty(tuple(filled.shape), filled.dtype).copy_(filled)}

    def load_state_dict(self, state: dict[str, Tensor], order: np.ndarray) -> None:
        self._num_filled = len(order)
        if _PLAIN in state:
            filled = self._held[: len(order)]
            torch.index_select(state[_PLAIN], 0, torch.from_numpy(order), out=filled)
            return
        for position, packed in enumerate(_packed_blocks(state, order)):
            data = zstandard.ZstdDecompressor().decompress(packed)
            self._held[position].view(-1).numpy()[:] = np.frombuffer(data, np.uint8)

    @staticmethod
    def _select(source: Tensor, index: Tensor, pin_memory: bool) -> Tensor:
        selected = empty((len(index), *source.shape[1:]), source.dtype, pin_memory=pin_memory)
        return torch.index_select(source, 0, index, out=selected)


class CompressedBlocks:
    """Blocks of bytes, each compressed as a whole.

    A screen is mostly equal to the screens before it in its block, so a block of screens
    shrinks several times as much as its screens one by one.
    """

    def __init__(self, num_blocks: int, shape: tuple[int, ...]) -> None:
        self._shape = shape
        self._held: list[bytes] = [b""] * num_blocks
        self.held_bytes = 0
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL)
        self._decompressor = zstandard.ZstdDecompressor()

    def write(self, start: int, blocks: Tensor) -> None:
        for position, block in enumerate(blocks, start):
            packed = self._compressor.compress(block.contiguous().numpy().data)
            # Copied: zstandard allocates room for the largest possible result and then cuts
            # it, which leaves a hole too small for the next block's room. Without the copy
            # a block of 16 kB took 474 kB.
            self._put(position, bytes(memoryview(packed)))

    def gather_rows(self, where: Where, *, pin_memory: bool) -> Tensor:
        period, *row_shape = self._shape
        num_sequences = where.blocks.shape[1]
        shape = (where.num_rows, num_sequences, *row_shape)
        gathered = empty(shape, torch.uint8, pin_memory=pin_memory)
        rows, block = gathered.numpy(), np.empty(self._shape, np.uint8)
        for first_row, positions in zip(
            range(0, where.num_rows, period), where.blocks, strict=True
        ):
            count = min(period, where.num_rows - first_row)
            for number, position in enumerate(positions.tolist()):
                # Read into warm memory first: in `rows` no two rows of a sequence adjoin.
                self._read(position, block[:count])
                rows[first_row : first_row + count, number] = block[:count]
        return gathered

    def gather_heads(self, where: Where, *, pin_memory: bool) -> Tensor:
        heads = where.blocks[0]
        gathered = empty((len(heads), *self._shape), torch.uint8, pin_memory=pin_memory)
        for number, position in enumerate(heads.tolist()):
            self._read(position, gathered.numpy()[number, ...])
        return gathered

    def state_dict(self, num_filled: int) -> dict[str, Tensor]:
        filled = self._held[:num_filled]
        packed = np.frombuffer(bytearray().join(filled), np.uint8)
        return {
            _PACKED: torch.from_numpy(packed),
            _LENGTHS: torch.tensor([len(block) for block in filled], dtype=torch.int64),
            _SHAPE: torch.tensor(self._shape, dtype=torch.int64),
        }

    def load_state_dict(self, state: dict[str, Tensor], order: np.ndarray) -> None:
        if _PLAIN in state:
            for position, source in enumerate(order.tolist()):
                self.write(position, state[_PLAIN][source : source + 1])
            return
        for position, packed in enumerate(_packed_blocks(state, order)):
            self._put(position, packed)

    def _put(self, position: int, packed: bytes) -> None:
        before = self._held[position]
        self._held[position] = packed
        self.held_bytes += len(packed) - len(before) + (0 if before else _OBJECT_BYTES)

    def _read(self, position: int, block: np.ndarray) -> None:
        """Decompresses the first rows of a block, as many as `block` has room for."""
        with self._decompressor.stream_reader(self._held[position]) as reader:
            reader.readinto(block.data.cast("B"))


def is_compressible(dtype: torch.dtype) -> bool:
    """Whether blocks of a leaf can be held compressed: screens, and stacks of them, are bytes."""
    return dtype == torch.uint8


def saved_shape(state: dict[str, Tensor]) -> tuple[tuple[int, ...], torch.dtype]:
    """Returns shape and dtype of a block in the `state_dict` of either kind."""
    if _PLAIN in state:
        return tuple(state[_PLAIN].shape[1:]), state[_PLAIN].dtype
    return tuple(state[_SHAPE].tolist()), torch.uint8


def empty(shape: tuple[int, ...], dtype: torch.dtype, *, pin_memory: bool = False) -> Tensor:
    """Returns uninitialised memory, which the caller fills at once.

    NumPy asks the system for large pages. Torch does not, and its small ones, faulted in
    one by one, make a batch of 55 MB take 31 ms to gather instead of 11.
    """
    if pin_memory:
        return torch.empty(shape, dtype=dtype, pin_memory=True)
    memory = np.empty(math.prod(shape) * dtype.itemsize, np.uint8)
    return torch.from_numpy(memory).view(dtype).view(shape)


def _packed_blocks(state: dict[str, Tensor], order: np.ndarray) -> Iterator[bytes]:
    lengths = state[_LENGTHS].numpy()
    ends = np.cumsum(lengths)
    packed = state[_PACKED].numpy()
    for index in order.tolist():
        yield packed[ends[index] - lengths[index] : ends[index]].tobytes()
