"""A replay that is restored from a checkpoint, into a replay like it or another one."""

import io
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from learner.checkpoint import _assert_plain
from learner.experience.replay.replay import Replay, ReplayBatch
from learner.records import Unrolls
from tests.learner.builders import assert_same
from tests.learner.experience.replay.replays import (
    NUM_ROWS,
    PERIOD,
    assert_from_streams,
    fill,
    make_replay,
    priorities_of,
)
from tests.learner.experience.replay.streams import stream_of, stream_unrolls


def restored_from(replay: Replay, **settings: Any) -> Replay:
    """Returns a new replay that was restored from a checkpoint's file."""
    state = replay.state_dict()
    _assert_plain(state, "state")
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    fresh = make_replay(**settings, rng_seed=99)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    return fresh


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("num_blocks", [0, 1, 5, 40])
def test_restored_replay_goes_on_exactly(num_blocks: int, compression: str) -> None:
    """Samples, links, generations and priorities are equal, for rings that are filled or not."""

    def initial_priorities(unrolls: Unrolls) -> Tensor:
        return 1 + unrolls.steps.actions[0] % 5

    settings: dict[str, Any] = {
        "capacity": 8,
        "compression": compression,
        "initial_priorities": initial_priorities,
    }
    replay = make_replay(**settings)
    fill(replay, range(num_blocks), envs=[0, 1])
    if num_blocks > 1:
        batch = replay.sample()
        replay.update_priorities(batch.heads, batch.generations, torch.arange(4.0))
    restored = restored_from(replay, **settings)
    assert len(restored) == len(replay)
    for block in range(num_blocks, num_blocks + 10):
        # The first sequence is whole thanks to the block before the checkpoint.
        for each in (replay, restored):
            fill(each, range(block, block + 1), envs=[0, 1])
        assert priorities_of(restored) == priorities_of(replay)
        if len(replay):
            assert_same_batch(restored.sample(), replay.sample())
    assert restored.report() == replay.report()


def assert_same_batch(got: ReplayBatch, expected: ReplayBatch) -> None:
    """Asserts that two batches are equal to the last bit."""
    assert_same(got.unrolls, expected.unrolls)
    assert torch.equal(got.importance_weights, expected.importance_weights)
    assert np.array_equal(got.heads, expected.heads)
    assert np.array_equal(got.generations, expected.generations)


def test_checkpoint_holds_only_what_is_filled() -> None:
    """A replay for a hundred thousand sequences has a small checkpoint at first."""
    replay = make_replay(capacity=1000)
    fill(replay, range(5))
    tensors = [x for x in replay.state_dict().values() if isinstance(x, Tensor)]
    generator_bytes = torch.Generator().get_state().nbytes
    block_bytes = replay._store.bytes_per_block(stream_unrolls([0], [0], 1))
    assert sum(x.nbytes for x in tensors) < 5 * (block_bytes + 32) + generator_bytes


def test_checkpoint_does_not_change_with_the_replay() -> None:
    """The file is written while inference goes on."""
    replay = make_replay(capacity=4)
    fill(replay, range(10))
    state = replay.state_dict()
    tensors = [x for x in state.values() if isinstance(x, Tensor)]
    copies = [x.clone() for x in tensors]
    fill(replay, range(10, 20))
    replay.sample()
    assert all(map(torch.equal, tensors, copies))


@pytest.mark.parametrize(("before", "after"), [("none", "zstd"), ("zstd", "none")])
def test_compression_may_change_on_resume(before: str, after: str) -> None:
    """The sequences and the next samples are the same."""
    settings: dict[str, Any] = {"capacity": 8, "compression": before}
    replay = make_replay(**settings)
    fill(replay, range(30), envs=[0, 1])
    restored = restored_from(replay, capacity=8, compression=after)
    for block in range(30, 40):
        for each in (replay, restored):
            fill(each, range(block, block + 1), envs=[0, 1])
        assert_same_batch(restored.sample(), replay.sample())


def held_sequences(replay: Replay) -> dict[tuple[int, int], float]:
    """Returns the priority of each (environment, row) at which a whole sequence starts."""
    priorities = priorities_of(replay)
    if not priorities:
        return {}
    unrolls = replay._store.gather(np.array([*priorities]))
    starts = stream_of(unrolls)
    envs, rows = zip(*starts, strict=True)
    assert_same(unrolls, stream_unrolls([*envs], [*rows], NUM_ROWS))
    return dict(zip(starts, priorities.values(), strict=True))


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("capacity", [1, 5, 8, 30])
@pytest.mark.parametrize("num_rounds", [0, 1, 3, 20])
def test_replay_of_another_capacity_takes_over_the_newest(
    num_rounds: int, capacity: int, compression: str
) -> None:
    """With their priorities, as many as there is room for; then it goes on as any other.

    The ring before was empty, partly filled, or had gone round.
    """
    replay = make_replay(capacity=12, initial_priorities=lambda x: 1 + x.steps.actions[0] % 5)
    fill(replay, range(num_rounds), envs=[0, 1, 2])
    before = held_sequences(replay)
    restored = restored_from(replay, capacity=capacity, compression=compression)
    after = held_sequences(restored)
    assert len(restored) == len(after)
    # The last block of each environment starts no whole sequence.
    room = restored._store.num_blocks - 3
    newest = sorted(before, key=lambda start: (start[1], start[0]))[-room:]
    assert after == {start: before[start] for start in newest}
    # New environments, as after any resume, overwrite the oldest blocks.
    for block in range(20):
        fill(restored, range(block, block + 1), envs=[5, 6])
        held_sequences(restored)
        if len(restored):
            assert_from_streams(restored.sample())
    assert len(restored) >= capacity


def test_more_environments_on_resume_find_room_beside_those_of_before() -> None:
    """The slots of actors before the restart are not waited for."""
    replay = make_replay(capacity=20)
    fill(replay, range(2), envs=[*range(20)])
    restored = restored_from(replay, capacity=2)
    fill(restored, range(3), envs=[20, 21, 22])
    assert set(held_sequences(restored)) >= {(20, 3), (21, 3), (22, 3)}


def test_sequences_of_another_length_are_refused_by_name() -> None:
    """Missing rows cannot be made up, and the replay stays as it was."""
    replay = make_replay()
    fill(replay, range(5))
    fresh = make_replay(period=PERIOD - 1)
    with pytest.raises(ValueError, match="replay period: expected 2, got 3"):
        fresh.load_state_dict(replay.state_dict())
    assert fresh.report() == make_replay().report()
    assert fresh._store.num_filled == 0
