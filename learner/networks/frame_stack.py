"""Frame stacking on the learner: actors send each frame once.

Pure tensor functions, called by the networks inside acting and training alike,
so both see the same stacks.
"""

import torch
from torch import Tensor


def stack_frames(context: Tensor, frames: Tensor, is_first: Tensor) -> tuple[Tensor, Tensor]:
    """Returns every row's newest S frames, zeros where the episode had none yet.

    With S = 3 and an episode that starts at row 2 (`-` a frame of zeros):

        row        0        1        2        3
        frames     f0       f1       g0       g1
        stacked  c1 c2 f0 c2 f0 f1  -  - g0  - g0 g1

    Args:
      context: [B, S - 1, *shape], the frames before row 0, oldest first.
      frames: [T, B, *shape], the frame of each row, any dtype.
      is_first: bool [T, B].

    Returns:
      stacked [T, B, S, *shape] in the dtype of `frames`, and the context
      [B, S - 1, *shape] for the row after the last.
    """
    num_context = context.shape[1]
    if num_context == 0:
        return frames.unsqueeze(2), context
    history = torch.cat([context.transpose(0, 1), frames])  # [S - 1 + T, B, *shape]
    windows = history.unfold(0, num_context + 1, 1).movedim(-1, 2)  # [T, B, S, *shape]
    # Most rows start no episode, and their windows need no copy. On a GPU the test would make
    # the host wait.
    if is_first.is_cuda or is_first.any():
        keep = _same_episode(is_first, num_context + 1)
        windows = windows.masked_fill(~keep.reshape(*keep.shape, *[1] * (frames.ndim - 2)), 0)
    return windows, windows[-1, :, 1:]


def _same_episode(is_first: Tensor, size: int) -> Tensor:
    """Returns bool [T, B, size]: which frames of each window are of row t's episode.

    The context needs no mask: it was masked when it was made.
    """
    keep = torch.ones((*is_first.shape, size), dtype=torch.bool, device=is_first.device)
    for age in range(1, size):
        # The frame `age` rows back counts if no episode started on the way here.
        keep[:, :, -1 - age] = keep[:, :, -age]
        started = is_first[: max(len(is_first) - age + 1, 0)]
        keep[age - 1 :, :, -1 - age] &= ~started
    return keep
