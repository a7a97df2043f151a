"""R2D2's experience: batches with the newest rows, priorities, and its checkpoint."""

import dataclasses
import logging
from pathlib import Path

import pytest
import torch

from learner.agents.r2d2 import R2D2Agent
from learner.agents.steps import example_step
from learner.checkpoint import save_checkpoint
from learner.config.agent_config import R2D2Config, ReplayConfig
from learner.config.run_config import NetworkConfig
from learner.experience.base import ExperienceContext
from learner.experience.replay.memory import GIB
from learner.experience.replay.replayed_sequences import ReplayedSequences
from learner.records import Completed, Unrolls
from seed.errors import ConfigError
from tests.learner.builders import NUM_ACTIONS, SPEED, assert_same, env_spec, random_unrolls, seeded
from tests.learner.experience.replay.replays import ones

CPU = torch.device("cpu")
CONFIG = R2D2Config(
    sequence_length=4,
    burn_in=2,
    batch_size=3,
    head_size=8,
    replay=ReplayConfig(replay_capacity=50, replay_min_size=2, samples_per_insert=2.0),
)


def fail(error: BaseException) -> None:
    """No thread is expected to raise."""
    raise AssertionError from error


def make_agent() -> R2D2Agent:
    """Returns an agent for a small vector."""
    return R2D2Agent(env_spec(SPEED), NetworkConfig(hidden_sizes=(8,), lstm_size=4), CONFIG)


def make_experience(
    replay: ReplayConfig = CONFIG.replay,
    available_bytes: int = GIB,
    config: R2D2Config = CONFIG,
) -> ReplayedSequences:
    """Returns an experience that has not been started."""
    agent = make_agent()
    context = ExperienceContext(
        example=example_step(env_spec(SPEED), agent),
        num_slots=4,
        device=CPU,
        rng_seed=1,
        on_failure=fail,
    )
    return ReplayedSequences(
        dataclasses.replace(config, replay=replay),
        context,
        initial_priorities=ones,
        available_bytes=available_bytes,
    )


def put_blocks(experience: ReplayedSequences, num_blocks: int) -> list[Unrolls]:
    """Puts consecutive blocks of 4 environments; returns them."""
    agent, blocks = make_agent(), []
    for number in range(num_blocks):
        state = agent.initial_state(4, CPU)
        unrolls = random_unrolls(env_spec(SPEED), CONFIG.period + 1, 4, state, seeded(number))
        q_values = torch.randn(CONFIG.period + 1, 4, NUM_ACTIONS, generator=seeded(number))
        steps = unrolls.steps._replace(policy_outputs={"q": q_values})
        blocks.append(Unrolls(steps, state))
        follows = torch.full((4,), number > 0).numpy()
        experience.put(Completed(blocks[-1], torch.arange(4).numpy(), follows))
    return blocks


def test_batch_comes_with_what_was_just_acted_once() -> None:
    """The golden check needs rows that the present weights may have chosen."""
    experience = make_experience()
    *_, newest = put_blocks(experience, 2)
    experience.start()
    first, second = experience.next_batch(), experience.next_batch()
    experience.close()
    assert first.batch.unrolls.steps.actions.shape == (CONFIG.num_rows, 3)
    assert first.batch.importance_weights is not None
    assert first.batch.importance_weights.shape == (3,)
    assert first.newest is not None
    assert_same(first.newest, newest)
    assert second.newest is None


def test_priorities_of_an_update_reach_the_replay() -> None:
    """They go to the sequences of the batch."""
    experience = make_experience(dataclasses.replace(CONFIG.replay, priority_exponent=1.0))
    put_blocks(experience, 2)
    experience.start()
    sample = experience.next_batch()
    experience.trained(sample, torch.full((3,), 1000.0))
    report = experience.report()
    experience.close()
    chosen = len(set(sample.source.heads.tolist()))
    assert report["replay/sequences"] == 4
    assert report["replay/priority_mean"] > 1000.0 * chosen / 4


def test_replay_that_would_not_fit_is_refused() -> None:
    """No memory is taken before; the error names the field and the sizes."""
    with pytest.raises(ConfigError, match="replay_capacity: expected .* GiB of memory, got 50"):
        make_experience(available_bytes=1000)


def test_replay_reads_back_from_a_checkpoint(tmp_path: Path) -> None:
    """Sequences, priorities, counts and the next samples are the same."""
    # Not a sum of powers of two.
    config = dataclasses.replace(CONFIG.replay, samples_per_insert=2.1)
    experience = make_experience(config)
    put_blocks(experience, 2)
    path = save_checkpoint(tmp_path, 1, {}, {}, keep=1, replay=experience.checkpoint())
    resumed = make_experience(config)
    resumed.restore(path)
    assert resumed.report() == experience.report()
    for each in (experience, resumed):
        each.start()
    wanted, got = experience.next_batch(), resumed.next_batch()
    for each in (experience, resumed):
        each.close()
    assert_same(got.batch.unrolls, wanted.batch.unrolls)
    assert torch.equal(got.source.importance_weights, wanted.source.importance_weights)


def test_checkpoint_without_replay_is_said_to_refill(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says why nothing is trained for a while."""
    experience = make_experience()
    experience.restore(save_checkpoint(tmp_path, 1, {}, {}, keep=1))
    assert "the checkpoint has no replay" in caplog.text
    assert "after 2 new sequences" in caplog.text
    assert experience.report() == {"replay/sequences": 0}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"checkpoint_replay": False}, ""),
        ({"checkpoint_replay_limit_gib": 1e-6}, "over checkpoint_replay_limit_gib (1e-06 GiB)"),
    ],
)
def test_replay_is_left_out_of_checkpoints_where_told_or_too_large(
    caplog: pytest.LogCaptureFixture, change: dict[str, bool | float], said: str
) -> None:
    """The log says the limit once, and not with each checkpoint."""
    experience = make_experience(dataclasses.replace(CONFIG.replay, **change))
    put_blocks(experience, 2)
    caplog.clear()
    assert experience.checkpoint() is None
    assert experience.checkpoint() is None
    assert [message for message in caplog.messages if said not in message] == []
    assert len(caplog.messages) == (1 if said else 0)


def saved_replay(
    directory: Path, num_blocks: int = 2, replay: ReplayConfig = CONFIG.replay
) -> Path:
    """Returns a checkpoint with a replay of `num_blocks` blocks of each environment."""
    experience = make_experience(replay)
    put_blocks(experience, num_blocks)
    return save_checkpoint(directory, 1, {}, {}, keep=1, replay=experience.checkpoint())


def test_damaged_replay_is_done_without(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The run goes on, the log says what is wrong, and the replay fills again."""
    path = saved_replay(tmp_path)
    file = path / "replay.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    experience = make_experience()
    caplog.clear()
    experience.restore(path)
    (message,) = caplog.messages
    assert "replay.safetensors" in message and "damaged" in message
    assert message.endswith("training goes on after 2 new sequences")
    assert experience.report() == {"replay/sequences": 0}
    put_blocks(experience, 2)
    assert experience.report()["replay/sequences"] == 4


def test_sequences_of_another_length_are_done_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They lack rows that the new flags need."""
    path = saved_replay(tmp_path)
    experience = make_experience(config=dataclasses.replace(CONFIG, burn_in=3))
    caplog.clear()
    experience.restore(path)
    (message,) = caplog.messages
    assert "replay num_rows: expected 8, got 7" in message
    assert message.endswith("training goes on after 2 new sequences")
    assert experience.report() == {"replay/sequences": 0}


def test_replay_of_another_capacity_is_taken_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As much is taken as there is room for, and the log says how much."""
    caplog.set_level(logging.INFO)
    # The run samples so little that no insert waits for a trainer.
    config = dataclasses.replace(CONFIG.replay, samples_per_insert=0.1)
    path = saved_replay(tmp_path, num_blocks=5, replay=config)
    experience = make_experience(dataclasses.replace(config, replay_capacity=6))
    caplog.clear()
    experience.restore(path)
    assert caplog.messages == ["replay: 6 sequences restored"]
    experience.start()
    assert experience.next_batch().batch.unrolls.steps.actions.shape == (CONFIG.num_rows, 3)
    experience.close()
