"""Configs refuse what cannot work, naming field, expectation and value."""

import dataclasses
import math
from typing import Any

import pytest

from learner.config.agent_config import R2D2Config, ReplayConfig, VTraceConfig
from learner.config.presets import PRESETS
from learner.config.run_config import (
    ActorConfig,
    InferenceConfig,
    LearnerConfig,
    NetworkConfig,
    OptimizerConfig,
    RunConfig,
)
from seed.env_config import AtariConfig, EnvConfig
from seed.errors import ConfigError

REFUSED: list[tuple[type, dict[str, Any], str]] = [
    (AtariConfig, {"repeat_action_probability": 1.0}, "repeat_action_probability"),
    (AtariConfig, {"repeat_action_probability": -0.1}, "repeat_action_probability"),
    (AtariConfig, {"frame_skip": 0, "max_pool": False}, "frame_skip"),
    (AtariConfig, {"frame_skip": 1, "max_pool": True}, "frame_skip"),
    (AtariConfig, {"noop_max": 0}, "noop_max"),
    (AtariConfig, {"screen_size": 7}, "screen_size"),
    (AtariConfig, {"max_frames_per_episode": 3}, "max_frames_per_episode"),
    (EnvConfig, {"env_id": ""}, "env_id"),
    (EnvConfig, {"env_kwargs": "{"}, "env_kwargs"),
    (EnvConfig, {"env_kwargs": "[1]"}, "env_kwargs"),
    (EnvConfig, {"env_id": "ALE/Pong-v5", "env_kwargs": '{"mode": 1}'}, "env_kwargs"),
    (ActorConfig, {"envs_per_group": 0}, "envs_per_group"),
    (ActorConfig, {"num_groups": 0}, "num_groups"),
    (NetworkConfig, {"hidden_sizes": ()}, "hidden_sizes"),
    (NetworkConfig, {"hidden_sizes": (8, 0)}, "hidden_sizes"),
    (NetworkConfig, {"lstm_size": -1}, "lstm_size"),
    (NetworkConfig, {"frame_stack": 0}, "frame_stack"),
    (NetworkConfig, {"torso": "vgg"}, "torso"),
    (NetworkConfig, {"torso": "my.nets:"}, "torso"),
    (OptimizerConfig, {"learning_rate": -1e-4}, "learning_rate"),
    (OptimizerConfig, {"learning_rate": math.nan}, "learning_rate"),
    (OptimizerConfig, {"optimizer_decay": 1.0}, "optimizer_decay"),
    (OptimizerConfig, {"momentum": -0.1}, "momentum"),
    (OptimizerConfig, {"epsilon": 0.0}, "epsilon"),
    (OptimizerConfig, {"max_grad_norm": -1.0}, "max_grad_norm"),
    (VTraceConfig, {"unroll_length": 0}, "unroll_length"),
    (VTraceConfig, {"batch_size": 0}, "batch_size"),
    (VTraceConfig, {"sample_reuse": 0}, "sample_reuse"),
    (VTraceConfig, {"discount_factor": 1.01}, "discount_factor"),
    (VTraceConfig, {"reward_clip_min": 1.0}, "reward_clip_min"),
    (VTraceConfig, {"entropy_cost": -0.1}, "entropy_cost"),
    (VTraceConfig, {"entropy_target": 0.5, "entropy_cost": 0.0}, "entropy_cost"),
    (VTraceConfig, {"entropy_target": 0.0}, "entropy_target"),
    (InferenceConfig, {"max_inference_batch": 0}, "max_inference_batch"),
    (InferenceConfig, {"max_wait_ms": -1.0}, "max_wait_ms"),
    (InferenceConfig, {"min_fill": 1.5}, "min_fill"),
    (InferenceConfig, {"max_envs": 0}, "max_envs"),
    (LearnerConfig, {"total_env_steps": 0}, "total_env_steps"),
    (VTraceConfig, {"reward_scale": 0.0}, "reward_scale"),
    (VTraceConfig, {"entropy_target_speed": 0.0}, "entropy_target_speed"),
    (VTraceConfig, {"value_cost": -0.1}, "value_cost"),
    (VTraceConfig, {"rho_max": -1.0}, "rho_max"),
    (VTraceConfig, {"c_max": -1.0}, "c_max"),
    (VTraceConfig, {"pg_rho_max": -1.0}, "pg_rho_max"),
    (VTraceConfig, {"trace_lambda": 1.1}, "trace_lambda"),
    (LearnerConfig, {"torch_threads": -1}, "torch_threads"),
    (LearnerConfig, {"train_threads": -1}, "train_threads"),
    (VTraceConfig, {"queue_batches": 0}, "queue_batches"),
    (
        VTraceConfig,
        {"entropy_target": 0.5, "entropy_cost_schedule": "linear"},
        "entropy_cost_schedule",
    ),
    (R2D2Config, {"sequence_length": 0}, "sequence_length"),
    (R2D2Config, {"burn_in": -1}, "burn_in"),
    (R2D2Config, {"sequence_period": -1}, "sequence_period"),
    (R2D2Config, {"n_step": 0}, "n_step"),
    (R2D2Config, {"priority_mix": 1.1}, "priority_mix"),
    (R2D2Config, {"rescale_epsilon": 0.0}, "rescale_epsilon"),
    (R2D2Config, {"target_update_every": 0}, "target_update_every"),
    (R2D2Config, {"exploration_base": -0.1}, "exploration_base"),
    (ReplayConfig, {"replay_capacity": 0}, "replay_capacity"),
    (ReplayConfig, {"replay_capacity": 10**8 + 1}, "replay_capacity"),
    (ReplayConfig, {"replay_capacity": 9, "replay_min_size": 10}, "replay_min_size"),
    (ReplayConfig, {"samples_per_insert": 0.0}, "samples_per_insert"),
    (ReplayConfig, {"importance_exponent": 1.1}, "importance_exponent"),
    (ReplayConfig, {"checkpoint_replay_limit_gib": -1.0}, "checkpoint_replay_limit_gib"),
    (LearnerConfig, {"checkpoint_every_s": 0.0}, "checkpoint_every_s"),
    (LearnerConfig, {"keep_checkpoints": 0}, "keep_checkpoints"),
    (LearnerConfig, {"report_every_s": 0.0}, "report_every_s"),
    (RunConfig, {"rng_seed": -1}, "rng_seed"),
    (RunConfig, {"rng_seed": 2**31}, "rng_seed"),
    (
        RunConfig,
        {
            "actor": ActorConfig(envs_per_group=8, num_groups=2),
            "inference": InferenceConfig(max_envs=15),
        },
        "max_envs",
    ),
]

CLASSES = (
    AtariConfig,
    EnvConfig,
    ActorConfig,
    NetworkConfig,
    OptimizerConfig,
    R2D2Config,
    ReplayConfig,
    VTraceConfig,
    InferenceConfig,
    LearnerConfig,
    RunConfig,
)


@pytest.mark.parametrize(
    ("cls", "values", "field"),
    REFUSED,
    ids=lambda x: x.__name__ if isinstance(x, type) else str(x),
)
def test_value_that_cannot_work_is_refused(cls: type, values: dict[str, Any], field: str) -> None:
    """The error names the field, what was expected, and the value."""
    with pytest.raises(ConfigError) as caught:
        cls(**values)
    message = str(caught.value)
    assert message.startswith(f"{field}: expected ")
    assert ", got " in message
    wanted, got = message.removeprefix(f"{field}: expected ").rsplit(", got ", 1)
    assert wanted
    assert got


@pytest.mark.parametrize(
    ("cls", "values"),
    [
        (AtariConfig, {"frame_skip": 1, "max_pool": False}),
        (AtariConfig, {"repeat_action_probability": 0.0, "noop_max": 1, "screen_size": 8}),
        (NetworkConfig, {"hidden_sizes": (1,), "lstm_size": 0, "frame_stack": 1}),
        (NetworkConfig, {"torso": "my.nets:Net"}),
        (OptimizerConfig, {"learning_rate": 0.0, "momentum": 0.0, "max_grad_norm": 0.0}),
        (VTraceConfig, {"reward_clip_min": -math.inf, "reward_clip_max": math.inf}),
        (VTraceConfig, {"discount_factor": 1.0, "entropy_cost": 0.0}),
        (InferenceConfig, {"max_wait_ms": 0.0, "min_fill": 0.0}),
        (InferenceConfig, {"min_fill": 1.0, "max_inference_batch": 1}),
        (R2D2Config, {"burn_in": 0, "head_size": 0, "priority_mix": 1.0, "exploration_base": 1.0}),
        (ReplayConfig, {"replay_capacity": 1, "replay_min_size": 1, "priority_exponent": 0.0}),
        (RunConfig, {"rng_seed": 2**31 - 1}),
    ],
    ids=str,
)
def test_value_at_its_bound_is_accepted(cls: type, values: dict[str, Any]) -> None:
    """A bound is itself an allowed value."""
    cls(**values)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_config_cannot_be_changed_once_made(cls: type) -> None:
    """Code that holds a config can rely on its values."""
    field = dataclasses.fields(cls)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(cls(), field, None)


@pytest.mark.parametrize("name", PRESETS)
def test_preset_is_whole(name: str) -> None:
    """It passes every check, has a line of help, and its names agree with its settings."""
    preset = PRESETS[name]
    assert preset.help.endswith(".")
    assert isinstance(preset.config, RunConfig)
    assert name.startswith("atari") == preset.config.env.is_atari


def test_presets_that_users_were_promised_exist() -> None:
    """The README and the Makefile use these names."""
    assert PRESETS.keys() >= {"cartpole-vtrace", "atari-vtrace", "atari-vtrace-cpu"}


def test_atari_presets_keep_the_published_protocol() -> None:
    """It has sticky actions, four frames, no life-loss terminals, and rewards in [-1, 1]."""
    config = PRESETS["atari-vtrace"].config
    atari = config.env.atari
    assert (atari.repeat_action_probability, atari.frame_skip) == (0.25, 4)
    assert (atari.life_loss_terminal, atari.full_action_space) == (False, True)
    assert isinstance(config.agent, VTraceConfig)
    assert (config.agent.reward_clip_min, config.agent.reward_clip_max) == (-1, 1)
    assert (config.network.torso, config.network.frame_stack) == ("impala_deep", 4)
    assert config.agent.loss_reduction == "sum"
    assert config.learner.total_env_steps * config.env.frames_per_step == 200_000_000


def test_frames_per_step_follow_from_the_environment() -> None:
    """Only the Atari emulator skips frames."""
    assert EnvConfig(env_id="ALE/Pong-v5").frames_per_step == 4
    assert EnvConfig(env_id="CartPole-v1").frames_per_step == 1


def test_env_kwargs_are_a_json_object() -> None:
    """They reach `gymnasium.make` unchanged."""
    env = EnvConfig(env_kwargs='{"render_mode": null, "size": [1, 2]}')
    assert env.make_kwargs == {"render_mode": None, "size": [1, 2]}
