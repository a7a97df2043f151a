"""Replay as its threads use it: sequences, priorities, and how they stay whole."""

from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from learner.concurrency.stopping import Stopped
from learner.experience.replay.memory import GIB
from learner.experience.replay.replay import SMALLEST_PRIORITY
from learner.records import Unrolls
from learner.reporting.merging import weight_of
from tests.learner.builders import TIMEOUT_S, WatchedCondition, assert_same, in_thread
from tests.learner.experience.replay.replays import (
    NUM_ROWS,
    PERIOD,
    assert_from_streams,
    fill,
    make_replay,
    priorities_of,
    update_all,
)
from tests.learner.experience.replay.streams import stream_blocks, stream_of, stream_unrolls


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_inserted_blocks_come_out_as_sequences_of_their_streams(
    compression: Literal["none", "zstd"],
) -> None:
    """Several environments insert blocks, while older blocks of all of them are overwritten."""
    replay = make_replay(capacity=12, compression=compression)
    seen: set[tuple[int, int]] = set()
    for block in range(40):
        fill(replay, range(block, block + 1), envs=[0, 1, 2])
        if block:
            batch = replay.sample()
            assert_from_streams(batch)
            seen |= set(stream_of(batch.unrolls))
    assert len(seen) > 60
    # 16 blocks: 12, and one for each of 4 slots, of which 3 are in use.
    assert len(replay) == 13


def test_first_priorities_are_of_the_sequences_that_became_whole() -> None:
    """They follow from the outcomes without observations, raised to the exponent."""
    given: list[Unrolls] = []

    def initial_priorities(unrolls: Unrolls) -> Tensor:
        given.append(unrolls)
        return unrolls.steps.actions[0].float() + 4

    replay = make_replay(priority_exponent=0.5, initial_priorities=initial_priorities)
    fill(replay, range(3))
    assert priorities_of(replay) == pytest.approx({0: 4**0.5, 1: 7**0.5})
    assert [unrolls.num_unrolls for unrolls in given] == [1, 1]
    assert given[0].steps.rows.observations == ()
    whole = stream_unrolls([0], [PERIOD], NUM_ROWS)
    rows = whole.steps.rows._replace(observations=())
    assert_same(given[1], Unrolls(whole.steps._replace(rows=rows), initial_state={}))


def test_sampling_follows_the_priorities_written_back() -> None:
    """Sampling is exact up to the equal parts that a batch is cut into."""
    replay = make_replay(priority_exponent=0.5, batch_size=1000)
    fill(replay, range(4))
    update_all(replay, [1.0, 4.0, 25.0])
    batch = replay.sample()
    counts = np.bincount(batch.heads, minlength=3)
    assert np.abs(counts - 1000 * np.array([1, 2, 5]) / 8).max() <= 2


def test_importance_weights_undo_uneven_sampling_up_to_the_exponent() -> None:
    """w = (1 / (N p))^beta over the largest in the batch, in float64 by its definition."""
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
    """Their places hold other sequences; sequences that are still held are updated."""
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
    """Else a sample might be drawn from rows that are being written."""
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
    """The batch is drawn again, and inserting does not wait for the copy."""
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
            copied.steps.actions[1:].copy_(gather(heads).steps.actions[1:])
        return copied

    monkeypatch.setattr(replay._store, "gather", slow_gather)
    batch = replay.sample()
    assert num_gathers == 3
    assert_from_streams(batch)
    first_held = 30 - replay._store.num_blocks
    assert min(row for _, row in stream_of(batch.unrolls)) >= first_held * PERIOD


def test_sequence_of_priority_0_may_still_come() -> None:
    """It has nothing to teach now; only what is no sequence is never drawn."""
    replay = make_replay(batch_size=50)
    fill(replay, range(3))
    update_all(replay, [0.0, 0.0])
    assert set(priorities_of(replay).values()) == {SMALLEST_PRIORITY}
    assert set(replay.sample().heads) == {0, 1}


@pytest.mark.parametrize("exponent", [0.0, 0.9])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
def test_priority_that_is_negative_or_not_finite_stops_the_run(bad: float, exponent: float) -> None:
    """Training has diverged, and sampling by such a priority would hide it."""
    replay = make_replay(priority_exponent=exponent)
    fill(replay, range(3))
    with pytest.raises(ValueError, match="priority: expected"):
        update_all(replay, [1.0, bad])


def test_insert_and_sample_wait_for_each_other_and_end_on_close() -> None:
    """The ratio is asked once for each group and each batch, and it counts sequences."""
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


def test_sample_waits_while_no_sequence_is_whole() -> None:
    """Actors that leave before their second block can push out every whole sequence."""
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
    """`sample` raises Stopped although no sequence has become whole."""
    replay = make_replay()
    replay._lock = condition = WatchedCondition()
    sampling = in_thread(replay.sample)
    assert condition.somebody_waits.wait(TIMEOUT_S)
    replay.close()
    with pytest.raises(Stopped):
        sampling.result(TIMEOUT_S)


def test_empty_replay_reports_no_means() -> None:
    """A mean over no sequence is absent."""
    assert make_replay().report() == {"replay/sequences": 0}


def test_report_tells_size_and_sampling() -> None:
    """The names are those of the metric table, which also asks for the weights."""
    replay = make_replay(min_size=1, samples_per_insert=1.0, batch_size=2)
    fill(replay, range(4))
    update_all(replay, [1.0, 2.0, 6.0])
    replay.sample()
    report = replay.report()
    assert report == {
        "replay/sequences": 3,
        "replay/gib": replay.held_bytes / GIB,
        "replay/priority_mean": 3.0,
        "replay/samples_per_insert": 1.0,
    }
    # Reports of several learners are weighed by sequences held and by inserts.
    assert weight_of(report["replay/priority_mean"]) == 3
    assert weight_of(report["replay/samples_per_insert"]) == 2
