"""Replay as its threads see it: what comes out, by which priority, and how it is kept whole."""

import io
import logging
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from learner.checkpoint import _assert_plain
from learner.records import Unrolls
from learner.replay.memory import GIB
from learner.replay.replay import SMALLEST_PRIORITY, Replay, ReplayBatch
from learner.replay.sample_ratio import SampleRatio
from learner.threads import Stopped
from seed.agent_config import ReplayConfig
from seed.errors import ConfigError
from tests.learner.builders import TIMEOUT_S, WatchedCondition, assert_same, in_thread
from tests.learner.replay.streams import stream_blocks, stream_of, stream_unrolls

PERIOD, NUM_ROWS, NUM_SLOTS = 3, 5, 4


def ones(unrolls: Unrolls) -> Tensor:
    """Returns equal priorities."""
    return torch.ones(unrolls.num_unrolls)


def make_replay(
    *,
    capacity: int = 20,
    min_size: int = 1,
    samples_per_insert: float | None = None,
    priority_exponent: float = 1.0,
    importance_exponent: float = 1.0,
    batch_size: int = 4,
    initial_priorities: Callable[[Unrolls], Tensor] = ones,
    rng_seed: int = 0,
) -> Replay:
    """Returns a small replay in which nothing waits for a ratio unless one is given."""
    config = ReplayConfig(
        replay_capacity=capacity,
        replay_min_size=min_size,
        samples_per_insert=samples_per_insert or 1.0,
        priority_exponent=priority_exponent,
        importance_exponent=importance_exponent,
    )
    replay = Replay(
        config,
        num_rows=NUM_ROWS,
        period=PERIOD,
        batch_size=batch_size,
        num_slots=NUM_SLOTS,
        initial_priorities=initial_priorities,
        rng_seed=rng_seed,
    )
    if samples_per_insert is None:
        replay._ratio = SampleRatio(1e6, min_size=0, tolerance=math.inf)
    return replay


def fill(replay: Replay, blocks: range, envs: list[int] | None = None) -> None:
    """Inserts blocks of each environment, all of the same number at once."""
    envs = envs or [0]
    for block in blocks:
        replay.insert(stream_blocks(envs, [block] * len(envs), PERIOD))


def assert_from_streams(batch: ReplayBatch) -> None:
    """Asserts that every sequence is what its environment's stream has from its first row."""
    envs, starts = zip(*stream_of(batch.unrolls), strict=True)
    assert_same(batch.unrolls, stream_unrolls([*envs], [*starts], NUM_ROWS))


def priorities_of(replay: Replay) -> dict[int, float]:
    """Returns position -> what sampling is in proportion to, where that is not 0."""
    weighed = replay._tree.get(np.arange(replay._store.num_blocks))
    return {int(i): float(weighed[i]) for i in np.flatnonzero(weighed)}


def test_inserted_blocks_come_out_as_sequences_of_their_streams() -> None:
    """Of several environments; at the same time rows of all of them are overwritten."""
    replay = make_replay(capacity=12)
    seen: set[tuple[int, int]] = set()
    for block in range(40):
        fill(replay, range(block, block + 1), envs=[0, 1, 2])
        if block:
            batch = replay.sample()
            assert_from_streams(batch)
            seen |= set(stream_of(batch.unrolls))
    assert len(seen) > 60
    # 16 blocks: 12 and one for each of 4 slots, of which 3 are in use.
    assert len(replay) == 13


def test_first_priorities_are_of_the_sequences_that_became_whole() -> None:
    """Computed from their outcomes, without observations; raised to the exponent."""
    given: list[Unrolls] = []

    def initial_priorities(unrolls: Unrolls) -> Tensor:
        given.append(unrolls)
        return unrolls.actions[0].float() + 4

    replay = make_replay(priority_exponent=0.5, initial_priorities=initial_priorities)
    fill(replay, range(3))
    assert priorities_of(replay) == pytest.approx({0: 4**0.5, 1: 7**0.5})
    assert [unrolls.num_unrolls for unrolls in given] == [1, 1]
    assert given[0].rows.observations == ()
    whole = stream_unrolls([0], [PERIOD], NUM_ROWS)
    bare = whole._replace(rows=whole.rows._replace(observations=()), initial_state={})
    assert_same(given[1], bare)


def test_sampling_follows_the_priorities_written_back() -> None:
    """To the power of the exponent; exactly so, up to the parts that a batch is cut into."""
    replay = make_replay(priority_exponent=0.5, batch_size=1000)
    fill(replay, range(4))
    update_all(replay, [1.0, 4.0, 25.0])
    batch = replay.sample()
    counts = np.bincount(batch.heads, minlength=3)
    assert np.abs(counts - 1000 * np.array([1, 2, 5]) / 8).max() <= 2


def update_all(replay: Replay, priorities: list[float]) -> None:
    """Writes priorities back to the first positions."""
    heads = np.arange(len(priorities))
    replay.update_priorities(heads, replay._store.generations(heads), torch.tensor(priorities))


def test_importance_weights_undo_uneven_sampling_up_to_the_exponent() -> None:
    """w = (1 / (N p))^beta over the largest in the batch, in float64 from its definition."""
    replay = make_replay(priority_exponent=1.0, importance_exponent=0.6, batch_size=20)
    fill(replay, range(4))
    update_all(replay, [1.0, 2.0, 7.0])
    batch = replay.sample()
    probabilities = np.array([0.1, 0.2, 0.7])[batch.heads]
    literal = (1 / (3 * probabilities)) ** 0.6
    expected = torch.from_numpy(literal / literal.max()).float()
    assert set(batch.heads) == {0, 1, 2}
    torch.testing.assert_close(batch.importance_weights, expected)


def test_priorities_of_overwritten_sequences_are_left_alone() -> None:
    """Another sequence has its place by now; those still held are updated."""
    replay = make_replay(capacity=2, batch_size=30)
    assert replay._store.num_blocks == 6
    fill(replay, range(6))
    batch = replay.sample()
    assert set(batch.heads) == {0, 1, 2, 3, 4}
    # Blocks 6 and 7 go to positions 0 and 1; with them 5 and 6 are whole.
    fill(replay, range(6, 8))
    replay.update_priorities(batch.heads, batch.generations, torch.full((30,), 9.0))
    assert priorities_of(replay) == {0: 1, 2: 9, 3: 9, 4: 9, 5: 1}


def test_priority_is_0_before_a_row_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a sample might be drawn from rows being written."""
    replay = make_replay(capacity=2)
    fill(replay, range(10))
    write = replay._store.write

    def checked_write(positions: np.ndarray, unrolls: Unrolls) -> None:
        assert replay._tree.get(positions).tolist() == [0.0] * len(positions)
        write(positions, unrolls)

    monkeypatch.setattr(replay._store, "write", checked_write)
    fill(replay, range(10, 20))
    assert len(replay) == len(priorities_of(replay))


def test_sequence_overwritten_while_it_was_copied_is_not_returned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The batch is drawn anew; inserting does not wait for the copy."""
    replay = make_replay(capacity=8, batch_size=8)
    fill(replay, range(10))
    gather, num_gathers = replay._store.gather, 0

    def slow_gather(heads: np.ndarray, *, pin_memory: bool) -> Unrolls:
        nonlocal num_gathers
        num_gathers += 1
        copied = gather(heads, pin_memory=pin_memory)
        if num_gathers <= 2:
            # Another thread needs any lock that is held now.
            blocks = range(10 * num_gathers, 10 * num_gathers + 10)
            in_thread(fill, replay, blocks).result(TIMEOUT_S)
            # Half of the copy is of new rows.
            copied.actions[1:].copy_(gather(heads).actions[1:])
        return copied

    monkeypatch.setattr(replay._store, "gather", slow_gather)
    batch = replay.sample()
    assert num_gathers == 3
    assert_from_streams(batch)
    first_held = 30 - replay._store.num_blocks
    assert min(row for _, row in stream_of(batch.unrolls)) >= first_held * PERIOD


def test_sequence_of_priority_0_may_still_come() -> None:
    """It has nothing to teach today; 0 is for what is no sequence."""
    replay = make_replay(batch_size=50)
    fill(replay, range(3))
    update_all(replay, [0.0, 0.0])
    assert set(priorities_of(replay).values()) == {SMALLEST_PRIORITY}
    assert set(replay.sample().heads) == {0, 1}


@pytest.mark.parametrize("exponent", [0.0, 0.9])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
def test_what_is_no_priority_stops_the_run(bad: float, exponent: float) -> None:
    """Training has diverged; sampling by it would only hide that."""
    replay = make_replay(priority_exponent=exponent)
    fill(replay, range(3))
    with pytest.raises(ValueError, match="priority: expected"):
        update_all(replay, [1.0, bad])


def test_insert_and_sample_wait_for_each_other_and_end_on_close() -> None:
    """The ratio is asked once for each group and each batch, and counts sequences."""
    replay = make_replay(min_size=2, samples_per_insert=1.0, batch_size=2)
    inserting = in_thread(fill, replay, range(200))
    for _ in range(10):
        assert_from_streams(replay.sample())
    replay.close()
    with pytest.raises(Stopped):
        inserting.result(TIMEOUT_S)
    with pytest.raises(Stopped):
        replay.sample()
    counts = replay._ratio.state_dict()
    assert counts["sampled"] == 20
    # Beside the first 2, one batch may lack, or two be ahead, and one group more.
    assert 20 - 2 <= counts["inserted"] - 2 <= 20 + 2 * 2 + 1


def test_sample_waits_while_nothing_is_whole_any_more() -> None:
    """Actors that leave before their second block push out all there was."""
    replay = make_replay(capacity=2, batch_size=1)
    fill(replay, range(2))
    for env in range(10):
        replay.insert(stream_blocks([env], [0], PERIOD, slots=[0]))
    assert len(replay) == 0
    replay._lock = condition = WatchedCondition()
    sampling = in_thread(replay.sample)
    assert condition.somebody_waits.wait(TIMEOUT_S)
    replay.insert(stream_blocks([9], [1], PERIOD, slots=[0]))
    assert stream_of(sampling.result(TIMEOUT_S).unrolls) == [(9, 0)]


def test_close_wakes_a_sample_that_waits_for_a_whole_sequence() -> None:
    """Not only one that waits for its turn."""
    replay = make_replay()
    replay._lock = condition = WatchedCondition()
    sampling = in_thread(replay.sample)
    assert condition.somebody_waits.wait(TIMEOUT_S)
    replay.close()
    with pytest.raises(Stopped):
        sampling.result(TIMEOUT_S)


def restored_from(replay: Replay, **settings: Any) -> Replay:
    """Returns a new replay that has been through a checkpoint's file."""
    state = replay.state_dict()
    _assert_plain(state, "state")
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    fresh = make_replay(**settings, rng_seed=99)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    return fresh


@pytest.mark.parametrize("num_blocks", [0, 1, 5, 40])
def test_restored_replay_goes_on_exactly(num_blocks: int) -> None:
    """Empty, partly filled, or many times round: samples, links, generations, priorities."""

    def initial_priorities(unrolls: Unrolls) -> Tensor:
        return 1 + unrolls.actions[0] % 5

    settings: dict[str, Any] = {"capacity": 8, "initial_priorities": initial_priorities}
    replay = make_replay(**settings)
    fill(replay, range(num_blocks), envs=[0, 1])
    if num_blocks > 1:
        batch = replay.sample()
        replay.update_priorities(batch.heads, batch.generations, torch.arange(4.0))
    restored = restored_from(replay, **settings)
    assert len(restored) == len(replay)
    for block in range(num_blocks, num_blocks + 10):
        # The first is whole thanks to its predecessor from before.
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
    """A replay for a hundred thousand sequences begins small."""
    replay = make_replay(capacity=1000)
    fill(replay, range(5))
    tensors = [x for x in replay.state_dict().values() if isinstance(x, Tensor)]
    generator_bytes = torch.Generator().get_state().nbytes
    block_bytes = replay._store.bytes_per_block(stream_unrolls([0], [0], 1))
    assert sum(x.nbytes for x in tensors) < 5 * (block_bytes + 32) + generator_bytes


def test_checkpoint_does_not_change_with_the_replay() -> None:
    """It is written while inference goes on."""
    replay = make_replay(capacity=4)
    fill(replay, range(10))
    state = replay.state_dict()
    tensors = [x for x in state.values() if isinstance(x, Tensor)]
    copies = [x.clone() for x in tensors]
    fill(replay, range(10, 20))
    replay.sample()
    assert all(map(torch.equal, tensors, copies))


def test_replay_of_another_size_is_refused_by_name() -> None:
    """Its positions would mean other blocks."""
    replay = make_replay(capacity=8)
    fill(replay, range(5))
    with pytest.raises(ValueError, match="replay num_blocks: expected 13, got 12"):
        restored_from(replay, capacity=9)


def test_report_says_nothing_of_nothing() -> None:
    """A mean over nothing is absent."""
    assert make_replay().report() == {"replay/sequences": 0}


def test_report_says_what_is_held_and_how_it_is_sampled() -> None:
    """By the names in the metrics' list."""
    replay = make_replay(min_size=1, samples_per_insert=1.0, batch_size=2)
    fill(replay, range(4))
    update_all(replay, [1.0, 2.0, 6.0])
    replay.sample()
    assert replay.report() == {
        "replay/sequences": 3,
        "replay/priority_mean": 3.0,
        "replay/samples_per_insert": 1.0,
    }


def atari_replay() -> tuple[Replay, Unrolls]:
    """Returns the published recipe's replay, empty, and one row as its network acts."""
    replay = Replay(
        ReplayConfig(replay_capacity=100_000),
        num_rows=121,
        period=80,
        batch_size=64,
        num_slots=1024,
        initial_priorities=ones,
        rng_seed=0,
    )
    row = stream_unrolls([0], [0], 1)
    row = row._replace(
        rows=row.rows._replace(observations=(torch.zeros(1, 1, 84, 84, dtype=torch.uint8),)),
        policy_outputs={"q": torch.zeros(1, 1, 18)},
        initial_state={
            "frames/observation": torch.zeros(1, 3, 84, 84, dtype=torch.uint8),
            "lstm/hidden": torch.zeros(1, 512),
            "lstm/cell": torch.zeros(1, 512),
        },
    )
    return replay, row


def test_hundred_thousand_atari_sequences_fit_64_gib(caplog: pytest.LogCaptureFixture) -> None:
    """84 x 84 screens, 80 trained rows after 40, stack of 4, LSTM of 512, 18 actions."""
    replay, row = atari_replay()
    block_bytes = 80 * (84 * 84 + 4 + 3 * 8 + 3 + 18 * 4) + 3 * 84 * 84 + 2 * 512 * 4
    assert replay.memory_bytes(row) == (100_000 + 1024) * block_bytes
    assert replay.memory_bytes(row) < 64 * GIB
    caplog.set_level(logging.INFO)
    replay.check_memory(row, available_bytes=64 * GIB)
    assert caplog.messages == ["replay: 100,000 sequences, 56.3 GiB"]


def test_replay_that_does_not_fit_is_refused_before_it_grows() -> None:
    """By its flag, with what there is and what it would take."""
    replay, row = atari_replay()
    message = "replay_capacity: expected .* 54.0 GiB .*, got 100,000, which take 56.3 GiB"
    with pytest.raises(ConfigError, match=message):
        replay.check_memory(row, available_bytes=60 * GIB)
