"""Streams whose every value tells its environment and its row, cut into unrolls."""

import numpy as np
import torch
from torch import Tensor

from learner.records import Completed, Rows, Steps, Unrolls

# Rows of one stream, so that the numbers of two streams never meet.
STREAM_LENGTH = 1000


def stream_unrolls(envs: list[int], starts: list[int], num_rows: int) -> Unrolls:
    """Returns rows `start` .. `start + num_rows` of the stream of each environment.

    Both number each row of the world, and each tensor is made of that number.
    """
    first = torch.tensor(envs) * STREAM_LENGTH + torch.tensor(starts)
    numbers = first + torch.arange(num_rows).unsqueeze(1)  # [num_rows, B]
    assert max(starts) + num_rows <= STREAM_LENGTH
    steps = Steps(
        rows=Rows(
            observations=(_digits(numbers), -numbers.float().unsqueeze(-1)),
            rewards=numbers.float(),
            previous_actions=numbers - 1,
            is_first=numbers % 7 == 0,
            terminated=numbers % 5 == 0,
            truncated=numbers % 3 == 0,
        ),
        actions=numbers,
        policy_outputs={"q": numbers.float().unsqueeze(-1) * torch.tensor([1.0, 2.0])},
        # More than 32 bits can hold.
        policy_versions=numbers + 2**40,
    )
    state = {"lstm/hidden": first.float().unsqueeze(-1) + 0.5, "frames": _digits(first)}
    return Unrolls(steps, state)


def stream_blocks(
    envs: list[int], blocks: list[int], period: int, slots: list[int] | None = None
) -> Completed:
    """Returns block number `blocks[i]` of each environment, as its unroll store emits it."""
    return Completed(
        unrolls=stream_unrolls(envs, [block * period for block in blocks], period + 1),
        slots=np.array(envs if slots is None else slots),
        follows=np.array(blocks) > 0,
    )


def stream_of(unrolls: Unrolls) -> list[tuple[int, int]]:
    """Returns (environment, row) at which each unroll starts."""
    return [divmod(number, STREAM_LENGTH) for number in unrolls.steps.actions[0].tolist()]


def _digits(numbers: Tensor) -> Tensor:
    """Returns numbers below 2^24 as three bytes, uint8 [..., 3]."""
    return torch.stack([numbers >> shift & 255 for shift in (16, 8, 0)], dim=-1).to(torch.uint8)
