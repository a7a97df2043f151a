"""The memory of a replay: what it takes, and when a replay that is too large is refused."""

import logging
from typing import Literal

import pytest
import torch

from learner.config.agent_config import ReplayConfig
from learner.experience.replay.memory import GIB
from learner.experience.replay.replay import Replay
from learner.records import Steps, Unrolls
from seed.errors import ConfigError
from tests.learner.experience.replay.replays import fill, make_replay, ones
from tests.learner.experience.replay.streams import stream_unrolls


def atari_replay(compression: Literal["none", "zstd"] = "none") -> tuple[Replay, Unrolls]:
    """Returns the published recipe's replay, empty, and one row as its network acts."""
    replay = Replay(
        ReplayConfig(replay_capacity=100_000, replay_compression=compression),
        num_rows=121,
        period=80,
        batch_size=64,
        num_slots=1024,
        initial_priorities=ones,
        rng_seed=0,
    )
    screens = torch.zeros(1, 1, 84, 84, dtype=torch.uint8)
    steps = with_observation(stream_unrolls([0], [0], 1).steps, screens)
    row = Unrolls(
        steps._replace(policy_outputs={"q": torch.zeros(1, 1, 18)}),
        initial_state={
            "frames/observation": torch.zeros(1, 3, 84, 84, dtype=torch.uint8),
            "lstm/hidden": torch.zeros(1, 512),
            "lstm/cell": torch.zeros(1, 512),
        },
    )
    return replay, row


def with_observation(steps: Steps, observation: torch.Tensor) -> Steps:
    """Returns steps whose only observation is the one given."""
    return steps._replace(rows=steps.rows._replace(observations=(observation,)))


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
    """The error names the flag, the memory there is, and the memory it takes."""
    replay, row = atari_replay()
    message = "replay_capacity: expected .* 54.0 GiB .*, got 100,000, which take 56.3 GiB"
    with pytest.raises(ConfigError, match=message):
        replay.check_memory(row, available_bytes=60 * GIB)


def test_compressed_replay_says_what_it_takes_at_most(caplog: pytest.LogCaptureFixture) -> None:
    """It is not refused for its uncompressed size, since it mostly fits."""
    replay, row = atari_replay("zstd")
    caplog.set_level(logging.INFO)
    replay.check_memory(row, available_bytes=GIB)
    (message,) = caplog.messages
    assert message.startswith("replay: 100,000 sequences, at most 56.3 GiB")


def test_compressed_replay_is_refused_once_it_is_known_not_to_fit() -> None:
    """It is refused from the smallest size on, by how well screens compressed so far."""
    replay = make_replay(capacity=100, min_size=10, compression="zstd")
    example = stream_unrolls([0], [0], 1)
    fill(replay, range(20))
    needed = replay.held_bytes / 20 * replay._store.num_blocks
    roomy, tight = (make_replay(capacity=100, min_size=10, compression="zstd") for _ in range(2))
    roomy.check_memory(example, int(needed * 1.3))
    fill(roomy, range(20))
    tight.check_memory(example, int(needed * 0.9))
    fill(tight, range(9))
    with pytest.raises(ConfigError, match="replay_capacity: expected as many .*, got 100, which"):
        fill(tight, range(9, 10))


def test_compression_of_what_has_no_screens_is_refused() -> None:
    """Compression would do nothing there."""
    replay, row = atari_replay("zstd")
    bare = row._replace(steps=with_observation(row.steps, torch.zeros(1, 1, 4)))
    with pytest.raises(ConfigError, match="replay_compression: expected none where .*, got zstd"):
        replay.check_memory(bare, available_bytes=64 * GIB)
