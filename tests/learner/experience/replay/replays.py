"""Small replays of numbered streams, and checks of their content."""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from learner.config.agent_config import ReplayConfig
from learner.experience.replay.replay import Replay, ReplayBatch
from learner.experience.replay.sample_ratio import SampleRatio
from learner.records import Unrolls
from tests.learner.builders import assert_same
from tests.learner.experience.replay.streams import stream_blocks, stream_of, stream_unrolls

PERIOD, NUM_ROWS, NUM_SLOTS = 3, 5, 4


def ones(unrolls: Unrolls) -> Tensor:
    """Returns equal priorities."""
    return torch.ones(unrolls.num_unrolls)


def make_replay(
    *,
    capacity: int = 20,
    min_size: int = 1,
    samples_per_insert: float | None = None,
    compression: Literal["none", "zstd"] = "none",
    period: int = PERIOD,
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
        replay_compression=compression,
        priority_exponent=priority_exponent,
        importance_exponent=importance_exponent,
    )
    replay = Replay(
        config,
        num_rows=NUM_ROWS,
        period=period,
        batch_size=batch_size,
        num_slots=NUM_SLOTS,
        initial_priorities=initial_priorities,
        rng_seed=rng_seed,
    )
    if samples_per_insert is None:
        replay._ratio = SampleRatio(1e6, min_size=0, tolerance=math.inf)
    return replay


def fill(replay: Replay, blocks: range, envs: list[int] | None = None) -> None:
    """Inserts the blocks numbered `blocks` of each environment, one number at a time."""
    envs = envs or [0]
    for block in blocks:
        replay.insert(stream_blocks(envs, [block] * len(envs), PERIOD))


def assert_from_streams(batch: ReplayBatch) -> None:
    """Asserts that every sequence equals its environment's stream from its first row on."""
    envs, starts = zip(*stream_of(batch.unrolls), strict=True)
    assert_same(batch.unrolls, stream_unrolls([*envs], [*starts], NUM_ROWS))


def priorities_of(replay: Replay) -> dict[int, float]:
    """Returns position -> the weight that sampling uses, where it is not 0."""
    weighed = replay._tree.get(np.arange(replay._store.num_blocks))
    return {int(i): float(weighed[i]) for i in np.flatnonzero(weighed)}


def update_all(replay: Replay, priorities: list[float]) -> None:
    """Writes new priorities to the first positions."""
    heads = np.arange(len(priorities))
    replay.update_priorities(heads, replay._store.generations(heads), torch.tensor(priorities))
