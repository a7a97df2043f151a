"""Who sits in which slots, and what is told when actors come and go."""

import numpy as np
import pytest

from learner.config.run_config import InferenceConfig
from learner.reporting.metrics import Metrics
from learner.serving.limits import Limits
from learner.serving.reception import Reception
from seed.errors import LearnerUnavailableError
from seed.pb import inference_pb2 as pb
from tests.learner.serving.support import WatchedBatcher


@pytest.fixture
def batcher() -> WatchedBatcher:
    """Tells how many environments it was told of."""
    return WatchedBatcher()


@pytest.fixture
def reception(batcher: WatchedBatcher) -> Reception:
    """Has room for four environments."""
    return Reception(
        make_task=lambda: pb.Task(),
        admit=lambda spec: "a-run",
        batcher=batcher,
        metrics=Metrics(),
        limits=Limits(max_envs=4),
    )


def test_actors_sit_in_slots_of_their_own(reception: Reception) -> None:
    """Each is told how many environments are connected with it."""
    first, second = reception.seat(2), reception.seat(2)
    assert not set(first.slots.tolist()) & set(second.slots.tolist())
    assert (first.envs_connected, second.envs_connected) == (2, 4)


def test_slots_of_who_left_are_free_only_once_released(reception: Reception) -> None:
    """The inference thread may still write to them; but they are no longer counted."""
    leaving = reception.seat(3)
    reception.leave(leaving.slots)
    with pytest.raises(LearnerUnavailableError):
        reception.seat(3)
    reception.release(leaving.slots)
    again = reception.seat(3)
    assert np.array_equal(again.slots, leaving.slots) and again.envs_connected == 3


def test_metrics_are_set_before_the_batcher_is_told(
    reception: Reception, batcher: WatchedBatcher
) -> None:
    """A thread that waits for the batcher may read them at once."""
    seen = []
    batcher.set_connected = lambda num_envs: seen.append(reception.metrics.drain())
    reception.leave(reception.seat(2).slots)
    assert [report["envs/connected"] for report in seen] == [2, 0]
    assert [report["actors/connected"] for report in seen] == [1, 0]


def test_default_limits_are_those_of_the_config() -> None:
    """A reception without limits of its own has room for as many as a run."""
    assert Limits().max_envs == InferenceConfig.max_envs
