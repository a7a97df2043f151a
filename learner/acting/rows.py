"""Tensors read and written by rows, fast on any device. Used by the inference thread."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


class RowTable:
    """Tensors [capacity, *shape] of one capacity. A batch reads or writes some of their rows.

    On the CPU the table uses NumPy: `index_copy_` copies byte by byte, 17 times slower for 16
    frame stacks, and for a small row a tensor operation costs more than the copy. The NumPy views
    are made once, because making one takes as long as writing 32 numbers.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        """The table shares the tensors' memory. The caller may keep and read the tensors."""
        self._tensors = tuple(tensors)
        # A table of no tensors may be that of a GPU: it must not ask for a NumPy index.
        on_host = bool(tensors) and not tensors[0].is_cuda
        self._arrays = tuple(x.numpy() for x in tensors) if on_host else None

    def read(self, rows: Tensor) -> list[Tensor]:
        """Returns copies [n, *shape] of int64 [n] rows of every tensor."""
        if self._arrays is None:
            return [held.index_select(0, rows) for held in self._tensors]
        indices = rows.numpy()
        return [torch.from_numpy(held.take(indices, axis=0)) for held in self._arrays]

    def write(self, rows: Tensor, values: Sequence[Tensor]) -> None:
        """Sets distinct int64 [n] rows of every tensor.

        Args:
          rows: on the tensors' device.
          values: one for each tensor, n rows of its shape and dtype.
        """
        if self._arrays is None:
            for held, value in zip(self._tensors, values, strict=True):
                held.index_copy_(0, rows, value.reshape(-1, *held.shape[1:]))
            return
        indices = rows.numpy()
        for held, value in zip(self._arrays, values, strict=True):
            held[indices] = value.numpy().reshape(-1, *held.shape[1:])

    def move(self, source: Tensor, target: Tensor) -> None:
        """Copies rows `source`, int64 [n], to rows `target`."""
        if self._arrays is None:
            for held in self._tensors:
                held.index_copy_(0, target, held.index_select(0, source))
            return
        sources, targets = source.numpy(), target.numpy()
        for held in self._arrays:
            held[targets] = held.take(sources, axis=0)


def row_indices(rows: np.ndarray, device: torch.device) -> Tensor:
    """Returns int64 [n] `rows` on `device`."""
    return torch.from_numpy(rows).to(device, non_blocking=True)
