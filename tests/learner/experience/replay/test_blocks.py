"""Blocks of one leaf: both kinds give back the same rows, by position and from a checkpoint."""

import numpy as np
import pytest
import torch
from torch import Tensor

from learner.experience.replay.blocks import (
    Blocks,
    CompressedBlocks,
    PlainBlocks,
    Where,
    saved_shape,
)
from tests.learner.builders import seeded

NUM_BLOCKS, PERIOD = 6, 4
SHAPE = (PERIOD, 3, 2)
# Each column is a sequence of two blocks, of which the second is used in part.
WHERE = Where(np.array([[0, 4, 2], [1, 5, 0]]), num_rows=6)


def make_blocks(kind: str) -> Blocks:
    """Returns an empty ring of blocks."""
    if kind == "compressed":
        return CompressedBlocks(NUM_BLOCKS, SHAPE)
    return PlainBlocks(NUM_BLOCKS, SHAPE, torch.uint8)


def filled(kind: str) -> tuple[Blocks, Tensor]:
    """Returns a full ring in which some blocks were overwritten, and what it holds."""
    blocks = make_blocks(kind)
    held = torch.randint(256, (NUM_BLOCKS, *SHAPE), generator=seeded(), dtype=torch.uint8)
    blocks.write(0, 255 - held)
    for start in (0, 3):
        blocks.write(start, held[start : start + 3])
    return blocks, held


@pytest.mark.parametrize("kind", ["plain", "compressed"])
def test_gathered_rows_are_those_of_the_blocks_named(kind: str) -> None:
    """Rows of a sequence follow one another, also over the border of a block."""
    blocks, held = filled(kind)
    rows = blocks.gather_rows(WHERE, pin_memory=False)
    assert rows.shape == (6, 3, 3, 2)
    for column, positions in enumerate(WHERE.blocks.T):
        assert torch.equal(rows[:, column], torch.cat([held[p] for p in positions])[:6])
    assert torch.equal(blocks.gather_heads(WHERE, pin_memory=False), held[[0, 4, 2]])


@pytest.mark.parametrize("source", ["plain", "compressed"])
@pytest.mark.parametrize("target", ["plain", "compressed"])
def test_either_kind_takes_what_either_kind_saved(source: str, target: str) -> None:
    """In the order that the caller gives; the shape of a block can be asked for before."""
    blocks, held = filled(source)
    state = blocks.state_dict(5)
    assert saved_shape(state) == (SHAPE, torch.uint8)
    order = np.array([3, 0, 4])
    restored = make_blocks(target)
    restored.load_state_dict(state, order)
    heads = restored.gather_heads(Where(np.array([[0, 1, 2]]), PERIOD), pin_memory=False)
    assert torch.equal(heads, held[order])
