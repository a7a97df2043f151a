"""The bounded queue: back-pressure, exact batches, order, and no deadlock."""

import random
from concurrent.futures import Future

import pytest

from learner.concurrency.stopping import Stopped
from learner.experience.unroll_queue import UnrollQueue
from learner.records import Unrolls
from tests.learner.builders import (
    TIMEOUT_S,
    WatchedCondition,
    in_thread,
    numbered_unrolls,
    numbers_of,
)


def watched(queue: UnrollQueue) -> WatchedCondition:
    """Replaces the condition of `queue` by one that tells when a thread waits on it."""
    queue._changed = condition = WatchedCondition()
    return condition


def start_put(queue: UnrollQueue, numbers: list[int], *, blocks: bool) -> Future[None]:
    """Puts on another thread, and returns when that thread waits or has finished."""
    condition = watched(queue)
    putting = in_thread(queue.put, numbered_unrolls(numbers))
    if blocks:
        assert condition.somebody_waits.wait(TIMEOUT_S)
    else:
        putting.result(TIMEOUT_S)
    return putting


def start_get(queue: UnrollQueue, count: int) -> Future[Unrolls]:
    """Gets on another thread, and returns when that thread waits."""
    condition = watched(queue)
    getting = in_thread(queue.get, count)
    assert condition.somebody_waits.wait(TIMEOUT_S)
    return getting


def test_put_blocks_while_full_and_goes_on_after_get() -> None:
    """The pause of inference bounds the policy lag."""
    queue = UnrollQueue(2)
    queue.put(numbered_unrolls([1, 2]))
    putting = start_put(queue, [3], blocks=True)
    assert not putting.done()
    assert len(queue) == 2
    assert numbers_of(queue.get(1)) == [1]
    putting.result(TIMEOUT_S)
    assert numbers_of(queue.get(2)) == [2, 3]


def test_get_blocks_until_a_whole_batch_is_there() -> None:
    """It never returns fewer unrolls than asked for."""
    queue = UnrollQueue(3)
    queue.put(numbered_unrolls([1, 2]))
    getting = start_get(queue, 3)
    assert not getting.done()
    queue.put(numbered_unrolls([3]))
    assert numbers_of(getting.result(TIMEOUT_S)) == [1, 2, 3]
    assert len(queue) == 0


def test_batches_are_exact_and_in_order_for_groups_of_any_size() -> None:
    """No unroll is lost, doubled or swapped."""
    rng, queue = random.Random(0), UnrollQueue(10)
    put, got = 0, []
    while len(got) < 500:
        while len(queue) < 10:
            size = rng.randint(1, 7)
            queue.put(numbered_unrolls([*range(put, put + size)]))
            put += size
        batch = numbers_of(queue.get(rng.randint(1, 10)))
        got += batch
        assert len(queue) == put - len(got)
    assert got == [*range(len(got))]


def test_group_larger_than_the_room_left_never_deadlocks() -> None:
    """The queue is one unroll short of a batch, so the trainer needs a part of the group."""
    queue = UnrollQueue(4)
    queue.put(numbered_unrolls([1, 2, 3]))
    start_put(queue, [4, 5, 6, 7, 8, 9], blocks=False)
    assert numbers_of(queue.get(4)) == [1, 2, 3, 4]
    putting = start_put(queue, [10], blocks=True)
    assert numbers_of(queue.get(4)) == [5, 6, 7, 8]
    putting.result(TIMEOUT_S)
    assert len(queue) == 2


def test_group_larger_than_the_whole_queue_goes_in() -> None:
    """A thousand environments may complete their unrolls in the same step."""
    queue = UnrollQueue(2)
    start_put(queue, [*range(5)], blocks=False)
    assert numbers_of(queue.get(2)) == [0, 1]
    assert numbers_of(queue.get(2)) == [2, 3]


def test_close_wakes_a_waiting_put() -> None:
    """Inference must not outlive the trainer."""
    queue = UnrollQueue(1)
    queue.put(numbered_unrolls([1]))
    putting = start_put(queue, [2], blocks=True)
    queue.close()
    with pytest.raises(Stopped):
        putting.result(TIMEOUT_S)


def test_close_wakes_a_waiting_get() -> None:
    """The trainer must not outlive inference."""
    queue = UnrollQueue(1)
    getting = start_get(queue, 1)
    queue.close()
    with pytest.raises(Stopped):
        getting.result(TIMEOUT_S)


def test_closed_queue_refuses_put_and_get() -> None:
    """Unrolls that still wait are dropped, since older weights than the saved ones acted."""
    queue = UnrollQueue(2)
    queue.put(numbered_unrolls([1]))
    queue.close()
    with pytest.raises(Stopped):
        queue.put(numbered_unrolls([2]))
    with pytest.raises(Stopped):
        queue.get(1)


def test_threads_exchange_everything_in_order() -> None:
    """A producer and a consumer at full speed share a queue of three."""
    queue = UnrollQueue(3)

    def produce() -> None:
        for number in range(0, 300, 2):
            queue.put(numbered_unrolls([number, number + 1], num_rows=2))

    producing = in_thread(produce)
    got = [number for _ in range(100) for number in numbers_of(queue.get(3))]
    producing.result(TIMEOUT_S)
    assert got == [*range(300)]
