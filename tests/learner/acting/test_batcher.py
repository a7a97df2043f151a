"""When a batch closes, what is in it, and which environments it waits for."""

import math
from concurrent.futures import Future

import pytest

from learner.acting.batcher import Batcher, Request
from learner.concurrency.stopping import Stopped
from learner.config.run_config import InferenceConfig
from tests.learner.builders import TIMEOUT_S, WatchedCondition, in_thread, request


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    """The clock does not start at zero, as no real clock does."""
    return Clock()


def make_batcher(
    clock: Clock,
    *,
    connected: int = 100,
    max_inference_batch: int = 8,
    max_wait_ms: float = 10.0,
    min_fill: float = 1.0,
) -> Batcher:
    """Returns a batcher for which `connected` environments may report."""
    config = InferenceConfig(
        max_inference_batch=max_inference_batch, max_wait_ms=max_wait_ms, min_fill=min_fill
    )
    batcher = Batcher(config, clock)
    batcher.set_connected(connected)
    return batcher


def submit(batcher: Batcher, clock: Clock, *sizes: int) -> list[Request]:
    """Submits a request of each size now."""
    requests = [request(size, submitted_at=clock.now_s) for size in sizes]
    for each in requests:
        batcher.submit(each)
    return requests


def take(batcher: Batcher) -> list[Request]:
    """Returns the next batch, which must have closed by now."""
    assert batcher.seconds_to_close() <= 0
    return batcher.next_batch()


def test_batch_closes_when_full(clock: Clock) -> None:
    """The batch closes at max_inference_batch environments, although more are connected."""
    batcher = make_batcher(clock)
    requests = submit(batcher, clock, 4)
    assert batcher.seconds_to_close() > 0
    requests += submit(batcher, clock, 4)
    assert batcher.seconds_to_close() == 0
    assert take(batcher) == requests


def test_batch_closes_at_deadline_when_not_full(clock: Clock) -> None:
    """It closes max_wait_ms after its oldest request; later requests do not postpone it."""
    batcher = make_batcher(clock)
    requests = submit(batcher, clock, 1)
    assert batcher.seconds_to_close() == pytest.approx(0.010)
    clock.now_s += 0.004
    requests += submit(batcher, clock, 1)
    assert batcher.seconds_to_close() == pytest.approx(0.006)
    clock.now_s += 0.007
    assert batcher.seconds_to_close() < 0
    assert take(batcher) == requests


def test_empty_batch_stays_open_for_ever(clock: Clock) -> None:
    """Without a request there is nothing to act on, also while the device is idle."""
    assert make_batcher(clock, connected=0, min_fill=0).seconds_to_close() == math.inf


def test_idle_device_takes_a_batch_once_enough_envs_have_reported(clock: Clock) -> None:
    """A batch closes with min_fill of the connected environments, rounded up."""
    batcher = make_batcher(clock, connected=9, max_inference_batch=100, min_fill=0.5)
    requests = submit(batcher, clock, 4)
    assert batcher.seconds_to_close() > 0
    requests += submit(batcher, clock, 1)
    assert batcher.seconds_to_close() == 0
    assert take(batcher) == requests


def test_idle_device_does_not_wait_without_min_fill(clock: Clock) -> None:
    """With min_fill 0 the batch closes with the first request."""
    batcher = make_batcher(clock, min_fill=0)
    submit(batcher, clock, 1)
    assert batcher.seconds_to_close() == 0


def test_environments_that_have_left_are_not_waited_for(clock: Clock) -> None:
    """The share counts only environments that are still connected."""
    batcher = make_batcher(clock, connected=6, min_fill=1.0)
    submit(batcher, clock, 3)
    assert batcher.seconds_to_close() > 0
    batcher.set_connected(3)
    assert batcher.seconds_to_close() == 0


def busy_batcher(clock: Clock, *, work_s: float, min_fill: float = 1.0) -> Batcher:
    """Returns an empty batcher that has seen 32 arrivals, 1 ms apart, and the work of a batch."""
    batcher = make_batcher(clock, max_inference_batch=100, min_fill=min_fill)
    for _ in range(32):
        clock.now_s += 0.001
        submit(batcher, clock, 1)
    take(batcher)
    clock.now_s += work_s
    assert batcher.seconds_to_close() == math.inf
    return batcher


def test_idle_device_waits_for_no_more_than_report_while_it_works(clock: Clock) -> None:
    """One report comes each ms, so the batch closes with 4: a batch takes 3.5 ms to compute."""
    batcher = busy_batcher(clock, work_s=0.0035)
    submit(batcher, clock, 3)
    assert batcher.seconds_to_close() > 0
    submit(batcher, clock, 1)
    assert batcher.seconds_to_close() == 0


def test_no_request_waits_longer_than_the_work_takes(clock: Clock) -> None:
    """A deadline of 10 ms would triple the latency of a batch that takes 4 ms."""
    batcher = busy_batcher(clock, work_s=0.004)
    submit(batcher, clock, 1)
    assert batcher.seconds_to_close() == pytest.approx(0.004)


def test_work_and_rate_may_only_lower_what_is_waited_for(clock: Clock) -> None:
    """After a batch that took a second, max_wait_ms and min_fill still hold."""
    batcher = busy_batcher(clock, work_s=1.0, min_fill=0.05)
    requests = submit(batcher, clock, 4)
    assert batcher.seconds_to_close() == pytest.approx(0.010)
    requests += submit(batcher, clock, 1)
    assert take(batcher) == requests


def test_time_of_the_work_is_a_running_mean(clock: Clock) -> None:
    """One slow batch does not decide, and the wait for requests does not count."""
    batcher = busy_batcher(clock, work_s=0.004)
    clock.now_s += 0.1
    submit(batcher, clock, 1)
    clock.now_s += 0.004
    take(batcher)
    clock.now_s += 0.009
    submit(batcher, clock, 1)
    assert batcher.seconds_to_close() == pytest.approx(0.8 * 0.004 + 0.2 * 0.009)


def test_full_batch_splits_at_the_limit_and_keeps_order(clock: Clock) -> None:
    """Groups stay whole and in order, and the groups left over close by their own deadline."""
    batcher = make_batcher(clock, max_inference_batch=8)
    first = submit(batcher, clock, 5)
    clock.now_s += 0.002
    rest = submit(batcher, clock, 4, 1)
    assert take(batcher) == first
    clock.now_s += 0.004
    rest += submit(batcher, clock, 1)
    assert take(batcher) == rest
    assert batcher.seconds_to_close() == math.inf


def test_group_larger_than_the_limit_goes_alone(clock: Clock) -> None:
    """A group cannot be split, so one that is too large forms a batch alone."""
    batcher = make_batcher(clock, max_inference_batch=8)
    small, large, last = submit(batcher, clock, 1, 20, 1)
    assert take(batcher) == [small]
    assert take(batcher) == [large]
    clock.now_s += 1
    assert take(batcher) == [last]


def test_full_size_is_what_can_come_together(clock: Clock) -> None:
    """`full_size` is at most what is connected and what fits, and at least 1 as a divisor."""
    assert make_batcher(clock, connected=5, max_inference_batch=8).full_size == 5
    assert make_batcher(clock, connected=50, max_inference_batch=8).full_size == 8
    assert make_batcher(clock, connected=0).full_size == 1


def waiting_batcher(
    clock: Clock, *pending: int, connected: int = 100
) -> tuple[Batcher, Future[list[Request]]]:
    """Returns a batcher, and the future of its `next_batch`, in which a thread waits."""
    batcher = make_batcher(clock, connected=connected, max_wait_ms=3_600_000)
    batcher._changed = condition = WatchedCondition()
    submit(batcher, clock, *pending)
    waiting = in_thread(batcher.next_batch)
    assert condition.somebody_waits.wait(TIMEOUT_S)
    return batcher, waiting


@pytest.mark.parametrize("pending", [(), (1,)], ids=["empty", "not_full"])
def test_close_wakes_the_waiting_thread(clock: Clock, pending: tuple[int, ...]) -> None:
    """`next_batch` raises Stopped, since no batch comes any more."""
    batcher, waiting = waiting_batcher(clock, *pending)
    batcher.close()
    with pytest.raises(Stopped):
        waiting.result(TIMEOUT_S)
    with pytest.raises(Stopped):
        batcher.next_batch()


def test_submit_wakes_the_waiting_thread(clock: Clock) -> None:
    """The request that fills the batch closes it."""
    batcher, waiting = waiting_batcher(clock, 4)
    submit(batcher, clock, 4)
    assert [each.num_envs for each in waiting.result(TIMEOUT_S)] == [4, 4]


def test_an_actor_that_leaves_wakes_the_waiting_thread(clock: Clock) -> None:
    """The environments that are left may all have reported by then."""
    batcher, waiting = waiting_batcher(clock, 3, connected=6)
    batcher.set_connected(3)
    assert len(waiting.result(TIMEOUT_S)) == 1


def test_waiting_thread_takes_the_batch_at_its_deadline(clock: Clock) -> None:
    """No other event is needed; this test waits one real millisecond."""
    batcher = make_batcher(clock, max_wait_ms=1.0)
    batcher._changed = condition = WatchedCondition()
    submit(batcher, clock, 1)
    waiting = in_thread(batcher.next_batch)
    assert condition.somebody_waits.wait(TIMEOUT_S)
    clock.now_s += 1
    assert len(waiting.result(TIMEOUT_S)) == 1


def test_requests_of_many_threads_come_out_once_each(clock: Clock) -> None:
    """The requests of one thread also keep their order."""
    batcher = make_batcher(clock, connected=100_000, max_inference_batch=7, min_fill=0)
    per_thread = [[request(1 + i % 3) for i in range(50)] for _ in range(4)]

    def submit_all(requests: list[Request]) -> None:
        for each in requests:
            batcher.submit(each)

    submitting = [in_thread(submit_all, part) for part in per_thread]
    taken: list[Request] = []
    while len(taken) < 200:
        batch = in_thread(batcher.next_batch).result(TIMEOUT_S)
        assert sum(each.num_envs for each in batch) <= 7
        taken += batch
    order = {id(each): index for index, each in enumerate(taken)}
    assert len(order) == 200
    for part in per_thread:
        positions = [order[id(each)] for each in part]
        assert positions == sorted(positions)
    for each in submitting:
        each.result(TIMEOUT_S)
