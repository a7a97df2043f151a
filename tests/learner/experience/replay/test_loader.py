"""Batches that are loaded ahead: how many, in which order, and how the thread ends."""

import math
import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from learner.concurrency.stopping import Stopped
from learner.config.agent_config import ReplayConfig
from learner.experience.replay.loader import BatchLoader
from learner.experience.replay.replay import Replay
from learner.experience.replay.sample_ratio import SampleRatio
from learner.records import Unrolls
from tests.learner.builders import TIMEOUT_S, WatchedCondition, in_thread, tensors_of
from tests.learner.experience.replay.streams import stream_blocks

CPU = torch.device("cpu")
NO_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NO_CUDA])]


def ones(unrolls: Unrolls) -> Tensor:
    """Returns equal priorities."""
    return torch.ones(unrolls.num_unrolls)


def filled_replay(num_blocks: int = 10) -> Replay:
    """Returns a replay of one environment whose samples need not wait."""
    replay = Replay(
        ReplayConfig(replay_capacity=20, replay_min_size=1),
        num_rows=5,
        period=3,
        batch_size=4,
        num_slots=1,
        initial_priorities=ones,
        rng_seed=0,
    )
    replay._ratio = SampleRatio(1e6, min_size=1, tolerance=math.inf)
    for block in range(num_blocks):
        replay.insert(stream_blocks([0], [block], 3))
    return replay


def fail(error: BaseException) -> None:
    """No thread is expected to raise."""
    raise AssertionError from error


def start_loader(
    replay: Replay,
    depth: int = 2,
    on_failure: Callable[[BaseException], None] = fail,
    device: torch.device = CPU,
) -> tuple[BatchLoader, WatchedCondition]:
    """Returns a running loader, and the condition that its thread waits on when it is full."""
    loader = BatchLoader(replay, device, on_failure=on_failure, depth=depth)
    loader._changed = condition = WatchedCondition()
    loader.start()
    return loader, condition


def num_sampled(replay: Replay) -> int:
    """Returns how many batches of 4 were drawn."""
    return int(replay._ratio.state_dict()["sampled"]) // 4


def test_depth_batches_are_loaded_ahead_and_no_more() -> None:
    """A batch that is drawn too early uses old priorities."""
    replay = filled_replay()
    loader, condition = start_loader(replay, depth=3)
    assert condition.somebody_waits.wait(TIMEOUT_S)
    assert num_sampled(replay) == 3
    for taken in range(1, 5):
        condition.somebody_waits.clear()
        loader.get()
        assert condition.somebody_waits.wait(TIMEOUT_S)
        assert num_sampled(replay) == 3 + taken
    loader.close()


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("device", DEVICES)
def test_batches_come_in_the_order_they_were_sampled(depth: int, device: str) -> None:
    """Each has its own sequences, weights and heads, and is on the device."""
    loader, _ = start_loader(filled_replay(), depth, device=torch.device(device))
    literal = filled_replay()
    for _ in range(8):
        batch, expected = loader.get(), literal.sample()
        assert np.array_equal(batch.heads, expected.heads)
        assert np.array_equal(batch.generations, expected.generations)
        assert batch.importance_weights.device.type == device
        assert torch.equal(batch.importance_weights.cpu(), expected.importance_weights)
        for got, wanted in zip(
            tensors_of(batch.unrolls), tensors_of(expected.unrolls), strict=True
        ):
            assert got.device.type == device
            assert torch.equal(got.cpu(), wanted)
    loader.close()


def test_without_depth_nothing_is_sampled_before_it_is_asked_for() -> None:
    """Each batch then uses the priorities after the batch before."""
    replay = filled_replay()
    loader, _ = start_loader(replay, depth=0)
    assert num_sampled(replay) == 0
    loader.get()
    assert num_sampled(replay) == 1
    loader.close()
    with pytest.raises(Stopped):
        loader.get()


def test_close_ends_a_thread_that_waits_for_the_first_sequences() -> None:
    """A trainer that waits for that thread ends too."""
    replay = filled_replay(num_blocks=0)
    replay._ratio._changed = waiting = WatchedCondition()
    loader, _ = start_loader(replay)
    getting = in_thread(loader.get)
    assert waiting.somebody_waits.wait(TIMEOUT_S)
    in_thread(loader.close).result(TIMEOUT_S)
    with pytest.raises(Stopped):
        getting.result(TIMEOUT_S)


def test_close_ends_a_thread_that_has_no_room() -> None:
    """The loaded batches are dropped, since no trainer takes them."""
    loader, condition = start_loader(filled_replay())
    assert condition.somebody_waits.wait(TIMEOUT_S)
    in_thread(loader.close).result(TIMEOUT_S)
    with pytest.raises(Stopped):
        loader.get()


def test_failure_to_sample_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run stops, and a trainer that waits is told."""
    replay, failures, failed = filled_replay(), list[BaseException](), threading.Event()

    def broken_sample(*, pin_memory: bool) -> None:
        raise RuntimeError("out of memory")

    def on_failure(error: BaseException) -> None:
        failures.append(error)
        failed.set()

    monkeypatch.setattr(replay, "sample", broken_sample)
    loader, _ = start_loader(replay, on_failure=on_failure)
    assert failed.wait(TIMEOUT_S)
    assert [str(error) for error in failures] == ["out of memory"]
    getting = in_thread(loader.get)
    loader.close()
    with pytest.raises(Stopped):
        getting.result(TIMEOUT_S)
