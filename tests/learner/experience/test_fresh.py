"""V-trace's experience: which unrolls are new in a batch, and how many wait."""

import numpy as np
import pytest

from learner.concurrency.stopping import Stopped
from learner.experience.fresh import FreshUnrolls
from learner.records import Completed
from tests.learner.builders import TIMEOUT_S, in_thread, numbered_unrolls, numbers_of


def completed(numbers: list[int]) -> Completed:
    """Returns one unroll for each number, as acting hands them on."""
    follows = np.zeros(len(numbers), bool)
    return Completed(numbered_unrolls(numbers), np.arange(len(numbers)), follows)


def test_newest_are_the_unrolls_that_come_for_the_first_time() -> None:
    """The golden check gets them without those that a batch reuses."""
    experience = FreshUnrolls(2, queue_batches=2, sample_reuse=2)
    experience.put(completed([0, 1, 2, 3]))
    experience.next_batch()
    sample = experience.next_batch()
    assert numbers_of(sample.batch.unrolls) == [0, 1, 2, 3]
    assert sample.newest is not None
    assert numbers_of(sample.newest) == [2, 3]


def test_as_many_batches_wait_as_the_config_says() -> None:
    """`put` returns while `queue_batches` whole batches have room, and waits beyond them."""
    experience = FreshUnrolls(2, queue_batches=3, sample_reuse=1)
    experience.put(completed([0, 1, 2, 3, 4, 5]))
    assert experience.report() == {"queue/unrolls": 6}
    waiting = in_thread(experience.put, completed([6]))
    experience.close()
    with pytest.raises(Stopped):
        waiting.result(TIMEOUT_S)
