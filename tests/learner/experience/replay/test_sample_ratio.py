"""The ratio of samples to inserts: it holds in both directions, without deadlock.

Two threads and no clock: a side that waits is known by the condition it waits on.
"""

from collections.abc import Callable
from concurrent.futures import Future

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.concurrency.stopping import Stopped
from learner.experience.replay.sample_ratio import SampleRatio
from tests.learner.builders import TIMEOUT_S, WatchedCondition, in_thread


def watched(ratio: SampleRatio) -> WatchedCondition:
    """Replaces the condition of `ratio` by one that tells when a thread waits on it."""
    ratio._changed = condition = WatchedCondition()
    return condition


def start_blocked(ratio: SampleRatio, method: Callable[[int], None], count: int) -> Future[None]:
    """Calls a method on the other thread; returns when it has begun to wait."""
    condition = watched(ratio)
    future = in_thread(method, count)
    assert condition.somebody_waits.wait(TIMEOUT_S)
    return future


def repeat_until_stopped(method: Callable[[int], None], count: int) -> None:
    """Calls `method` until it raises Stopped."""
    try:
        while True:
            method(count)
    except Stopped:
        return


def test_sample_waits_for_the_smallest_size() -> None:
    """It waits for no more: the inserts that reach the smallest size owe no samples."""
    ratio = SampleRatio(1.0, min_size=10, tolerance=0)
    ratio.insert(9)
    sampling = start_blocked(ratio, ratio.sample, 4)
    assert not sampling.done()
    ratio.insert(1)
    sampling.result(TIMEOUT_S)
    counts = ratio.state_dict()
    assert (counts["inserted"], counts["sampled"]) == (10, 4)


def test_inserts_up_to_the_smallest_size_never_wait() -> None:
    """This holds for any tolerance, however small."""
    ratio = SampleRatio(8.0, min_size=10, tolerance=0)
    for _ in range(10):
        ratio.insert(1)


def test_sample_waits_while_samples_are_ahead() -> None:
    """The sample waits until inserts have earned the last batch."""
    ratio = SampleRatio(0.5, min_size=0, tolerance=8)
    ratio.sample(4)
    sampling = start_blocked(ratio, ratio.sample, 4)
    ratio.insert(7)
    assert not sampling.done()
    ratio.insert(1)
    sampling.result(TIMEOUT_S)


def test_insert_waits_while_inserts_are_ahead() -> None:
    """The insert waits beyond the tolerance; what it inserted counts already."""
    ratio = SampleRatio(0.5, min_size=2, tolerance=3)
    for _ in range(4):
        ratio.insert(2)
    inserting = start_blocked(ratio, ratio.insert, 2)
    assert ratio.state_dict()["inserted"] == 10
    ratio.sample(1)
    inserting.result(TIMEOUT_S)


def test_group_larger_than_the_tolerance_goes_in_and_is_waited_for_by_the_next() -> None:
    """A thousand environments may complete their blocks in the same step."""
    ratio = SampleRatio(1.0, min_size=0, tolerance=4)
    ratio.insert(100)
    inserting = start_blocked(ratio, ratio.insert, 1)
    ratio.sample(96)
    assert not inserting.done()
    ratio.sample(1)
    inserting.result(TIMEOUT_S)


def test_ratio_is_kept_under_a_slow_trainer() -> None:
    """The trainer samples only once inference waits."""
    ratio = SampleRatio(0.75, min_size=50, tolerance=32)
    condition = watched(ratio)
    inserting = in_thread(repeat_until_stopped, ratio.insert, 7)
    for _ in range(400):
        assert condition.somebody_waits.wait(TIMEOUT_S)
        condition.somebody_waits.clear()
        ratio.sample(16)
    assert condition.somebody_waits.wait(TIMEOUT_S)
    assert ratio.samples_per_insert() == pytest.approx(0.75, rel=0.01)
    ratio.close()
    inserting.result(TIMEOUT_S)


def test_ratio_is_kept_under_slow_actors() -> None:
    """Actors insert only once the trainer waits."""
    ratio = SampleRatio(0.75, min_size=50, tolerance=32)
    condition = watched(ratio)
    sampling = in_thread(repeat_until_stopped, ratio.sample, 16)
    for _ in range(1500):
        assert condition.somebody_waits.wait(TIMEOUT_S)
        condition.somebody_waits.clear()
        ratio.insert(7)
    assert condition.somebody_waits.wait(TIMEOUT_S)
    assert ratio.samples_per_insert() == pytest.approx(0.75, rel=0.01)
    ratio.close()
    sampling.result(TIMEOUT_S)


COUNTS = st.lists(st.integers(0, 300), max_size=30)


@given(
    samples_per_insert=st.floats(0.01, 100),
    min_size=st.integers(0, 100),
    tolerance=st.floats(0, 100),
    groups=COUNTS,
    batches=COUNTS,
)
@settings(max_examples=150, deadline=None, derandomize=True, database=None)
def test_two_sides_never_wait_for_each_other(
    samples_per_insert: float,
    min_size: int,
    tolerance: float,
    groups: list[int],
    batches: list[int],
) -> None:
    """For any inserts and samples one side gets through, and then stops the other."""
    ratio = SampleRatio(samples_per_insert, min_size=min_size, tolerance=tolerance)

    def run(method: Callable[[int], None], counts: list[int]) -> None:
        try:
            for count in counts:
                method(count)
            ratio.close()
        except Stopped:
            return

    sides = [in_thread(run, ratio.insert, groups), in_thread(run, ratio.sample, batches)]
    for side in sides:
        side.result(TIMEOUT_S)


@pytest.mark.parametrize("method", ["insert", "sample"])
def test_close_wakes_a_waiting_thread(method: str) -> None:
    """Neither side outlives the run."""
    ratio = SampleRatio(1.0, min_size=1, tolerance=0)
    if method == "insert":
        ratio.insert(5)
    waiting = start_blocked(ratio, getattr(ratio, method), 1)
    ratio.close()
    with pytest.raises(Stopped):
        waiting.result(TIMEOUT_S)


def test_closed_ratio_lets_no_call_pass() -> None:
    """This holds also where no call would have to wait."""
    ratio = SampleRatio(1.0, min_size=0, tolerance=10)
    ratio.close()
    with pytest.raises(Stopped):
        ratio.insert(1)
    with pytest.raises(Stopped):
        ratio.sample(1)


def test_ratio_over_nothing_is_none() -> None:
    """Inserts up to the smallest size do not count."""
    ratio = SampleRatio(1.0, min_size=3, tolerance=10)
    ratio.insert(3)
    assert ratio.samples_per_insert() is None


def test_restored_ratio_owes_what_was_owed() -> None:
    """A run that goes on does not collect the smallest size again."""
    ratio = SampleRatio(0.5, min_size=4, tolerance=100)
    ratio.insert(12)
    ratio.sample(3)
    restored = SampleRatio(0.5, min_size=4, tolerance=100)
    restored.load_state_dict(ratio.state_dict(), num_held=0)
    restored.sample(2)
    sampling = start_blocked(restored, restored.sample, 1)
    restored.insert(2)
    sampling.result(TIMEOUT_S)


@pytest.mark.parametrize("samples_per_insert", [0.1, 10.0])
def test_ratio_changed_on_resume_holds_from_there_on(samples_per_insert: float) -> None:
    """Neither side makes up for the time under the old ratio."""
    before = SampleRatio(1.0, min_size=10, tolerance=0)
    before.insert(10)
    for _ in range(500):
        before.sample(4)
        before.insert(4)
    ratio = SampleRatio(samples_per_insert, min_size=20, tolerance=5)
    ratio.load_state_dict(before.state_dict(), num_held=100)
    in_thread(ratio.insert, 1).result(TIMEOUT_S)
    in_thread(ratio.sample, 4).result(TIMEOUT_S)
    assert ratio.samples_per_insert() == 4


def test_smallest_size_raised_on_resume_is_waited_for() -> None:
    """Sequences that are held count towards the new size."""
    before = SampleRatio(1.0, min_size=2, tolerance=0)
    before.insert(3)
    ratio = SampleRatio(1.0, min_size=5, tolerance=0)
    ratio.load_state_dict(before.state_dict(), num_held=3)
    sampling = start_blocked(ratio, ratio.sample, 1)
    ratio.insert(1)
    assert not sampling.done()
    ratio.insert(1)
    sampling.result(TIMEOUT_S)


def test_counts_of_a_checkpoint_without_settings_are_taken_over() -> None:
    """They count as before, when no settings were saved with them."""
    ratio = SampleRatio(1.0, min_size=2, tolerance=0)
    ratio.load_state_dict({"inserted": 12, "sampled": 5}, num_held=9)
    assert ratio.samples_per_insert() == 0.5
