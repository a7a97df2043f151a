"""Writing some rows of a tensor, fast on any device. Used by the inference thread."""

from torch import Tensor


def write_rows(held: Tensor, indices: Tensor, rows: Tensor) -> Tensor:
    """Sets held[indices] = rows along the first dimension; returns `held`.

    On the CPU through NumPy, which copies whole rows: `index_copy_` goes byte by
    byte, 17 times slower for 16 frame stacks.

    Args:
      held: [N, ...].
      indices: int64 [n], distinct.
      rows: [n, ...], dtype of `held`.
    """
    if held.is_cuda:
        held.index_copy_(0, indices, rows)
    else:
        held.numpy()[indices.numpy()] = rows.numpy()
    return held
