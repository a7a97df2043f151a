"""Frame stacking against a literal loop, across episode starts and unroll borders."""

import pytest
import torch
from torch import Tensor

from learner.networks.frame_stack import stack_frames
from tests.learner.builders import random_flags, seeded

B, SHAPE = 4, (2, 3)


def literal_stack(context: Tensor, frames: Tensor, is_first: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the result of `stack_frames`, one environment and one row at a time."""
    size = context.shape[1] + 1
    stacked = torch.zeros(*frames.shape[:2], size, *frames.shape[2:], dtype=frames.dtype)
    following = context.clone()
    for b in range(frames.shape[1]):
        newest = list(context[b])  # oldest first
        for t in range(len(frames)):
            if is_first[t, b]:
                newest = [torch.zeros_like(frames[t, b])] * (size - 1)
            window = [*newest, frames[t, b]]
            stacked[t, b] = torch.stack(window)
            newest = window[1:]
        if newest:
            following[b] = torch.stack(newest)
    return stacked, following


def random_frames(num_rows: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Returns [T, B, *SHAPE] without zeros, which stand for padding."""
    values = torch.randint(1, 200, (num_rows, B, *SHAPE), generator=generator)
    return values.to(dtype)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.int64], ids=str)
@pytest.mark.parametrize("num_rows", [1, 2, 3, 9])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_stack_equals_literal_loop(size: int, num_rows: int, dtype: torch.dtype) -> None:
    """The stack holds more or fewer rows than there are, and episodes start at random rows."""
    generator = seeded(size)
    for probability in (0.0, 0.3, 1.0):
        context = random_frames(size - 1, generator, dtype).transpose(0, 1)
        frames = random_frames(num_rows, generator, dtype)
        is_first = random_flags((num_rows, B), generator, probability)
        stacked, following = stack_frames(context, frames, is_first)
        expected, expected_following = literal_stack(context, frames, is_first)
        assert stacked.dtype == following.dtype == dtype
        assert torch.equal(stacked, expected)
        assert torch.equal(following, expected_following)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_rows_one_by_one_equal_one_call(size: int) -> None:
    """Acting has T = 1 and training T + 1; the context carries frames over every border."""
    generator = seeded(size)
    context = torch.zeros(B, size - 1, *SHAPE)
    frames, is_first = random_frames(12, generator, torch.float32), random_flags((12, B), generator)
    expected, expected_following = stack_frames(context, frames, is_first)
    rows = []
    for t in range(12):
        row, context = stack_frames(context, frames[t : t + 1], is_first[t : t + 1])
        rows.append(row)
    assert torch.equal(torch.cat(rows), expected)
    assert torch.equal(context, expected_following)


def test_stack_equals_the_drawing_of_its_docstring() -> None:
    """S = 3, an episode that starts at row 2."""
    c1, c2, f0, f1, g0, g1 = 1, 2, 3, 4, 5, 6
    stacked, following = stack_frames(
        torch.tensor([[c1, c2]]),
        torch.tensor([[f0], [f1], [g0], [g1]]),
        torch.tensor([[False], [False], [True], [False]]),
    )
    assert stacked[:, 0].tolist() == [[c1, c2, f0], [c2, f0, f1], [0, 0, g0], [0, g0, g1]]
    assert following.tolist() == [[g0, g1]]


def test_bool_frames_can_be_stacked() -> None:
    """MinAtar's planes are bool."""
    generator = seeded()
    context = random_flags((B, 2, *SHAPE), generator)
    frames = random_flags((5, B, *SHAPE), generator)
    is_first = random_flags((5, B), generator)
    stacked, following = stack_frames(context, frames, is_first)
    expected, expected_following = literal_stack(context, frames, is_first)
    assert torch.equal(stacked, expected)
    assert torch.equal(following, expected_following)


def test_reset_of_one_environment_leaves_the_others_alone() -> None:
    """Each environment has its own mask."""
    frames = torch.arange(1, 7).reshape(3, 2)
    is_first = torch.tensor([[False, False], [True, False], [False, False]])
    stacked, _ = stack_frames(torch.tensor([[10], [20]]), frames, is_first)
    assert stacked[:, 0].tolist() == [[10, 1], [0, 3], [3, 5]]
    assert stacked[:, 1].tolist() == [[20, 2], [2, 4], [4, 6]]


def test_frame_that_is_not_finite_ends_with_its_episode() -> None:
    """A product with 0 would not remove it, since 0 times infinity is NaN."""
    frames = torch.tensor([[torch.inf], [torch.nan], [1.0], [2.0]])
    is_first = torch.tensor([[False], [False], [True], [False]])
    stacked, following = stack_frames(torch.tensor([[torch.inf, torch.nan]]), frames, is_first)
    assert stacked[2:, 0].tolist() == [[0, 0, 1], [0, 1, 2]]
    assert following.tolist() == [[1, 2]]
