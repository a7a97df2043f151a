"""Named starting points: preset name -> config. Every field stays a flag.

Read when a command line is parsed. Other packages may define presets of their own.
"""

import dataclasses
import math
from typing import NamedTuple

from learner.config.agent_config import R2D2Config, ReplayConfig, VTraceConfig
from learner.config.plugins import Kind, check_name, installed, load
from learner.config.run_config import (
    ActorConfig,
    LearnerConfig,
    NetworkConfig,
    OptimizerConfig,
    RunConfig,
)
from seed.env_config import AtariConfig, EnvConfig
from seed.errors import ConfigError, expected
from seed.suggestions import did_you_mean, full_name, near_names


class Preset(NamedTuple):
    """One line of help and the config it stands for."""

    help: str
    config: RunConfig


_ADAM = OptimizerConfig(
    optimizer="adam", learning_rate=1e-3, momentum=0.9, optimizer_decay=0.999, epsilon=1e-5
)

_CARTPOLE_VTRACE = RunConfig(
    env=EnvConfig(env_id="CartPole-v1"),
    network=NetworkConfig(torso="mlp", hidden_sizes=(64, 64)),
    # Returns of up to 1/(1 - .99) = 100 would dominate the shared torso; scaled returns do not.
    # Rewards are not clipped, for environments that are not CartPole: --env-id LunarLander-v3.
    agent=VTraceConfig(
        unroll_length=20,
        batch_size=16,
        reward_scale=0.05,
        reward_clip_min=-math.inf,
        reward_clip_max=math.inf,
    ),
    optimizer=_ADAM,
    actor=ActorConfig(envs_per_group=16),
    learner=LearnerConfig(total_env_steps=400_000),
)

_CATCH_VTRACE = dataclasses.replace(
    _CARTPOLE_VTRACE,
    env=EnvConfig(env_id="seed/Catch-v0"),
    network=NetworkConfig(torso="small_conv"),
    agent=dataclasses.replace(_CARTPOLE_VTRACE.agent, reward_scale=1.0),
    learner=LearnerConfig(total_env_steps=150_000),
)

# The recipe with published 57-game results: 50M env steps = 200M frames, after Espeholt
# et al. 2018.
_ATARI_VTRACE = RunConfig(
    env=EnvConfig(env_id="ALE/Pong-v5"),
    network=NetworkConfig(torso="impala_deep", frame_stack=4),
    agent=VTraceConfig(unroll_length=20, batch_size=32),
    optimizer=OptimizerConfig(optimizer="rmsprop", learning_rate=6e-4, epsilon=0.01),
    actor=ActorConfig(envs_per_group=32),
    learner=LearnerConfig(total_env_steps=50_000_000),
)

_ATARI_VTRACE_CPU = dataclasses.replace(
    _ATARI_VTRACE,
    env=EnvConfig(env_id="ALE/Pong-v5", atari=AtariConfig(full_action_space=False)),
    network=NetworkConfig(torso="impala_shallow", frame_stack=4, center_images=True),
    # Small batches give many updates in few env steps, and each unroll is trained on twice:
    # on a few cores env steps are the scarcest resource.
    agent=VTraceConfig(
        unroll_length=20,
        batch_size=4,
        sample_reuse=2,
        queue_batches=4,
        entropy_cost=0.005,
        entropy_cost_schedule="linear",
    ),
    optimizer=dataclasses.replace(_ADAM, max_grad_norm=80.0),
    actor=ActorConfig(envs_per_group=32),
    learner=LearnerConfig(total_env_steps=5_000_000),
)

# Short sequences, each trained on several times. A value reaches back by n_step with every
# copy to the target network, but has to reach some 100 steps: so the copies are frequent.
_CARTPOLE_R2D2 = dataclasses.replace(
    _CARTPOLE_VTRACE,
    network=NetworkConfig(torso="mlp", hidden_sizes=(64,), lstm_size=64),
    agent=R2D2Config(
        sequence_length=10,
        burn_in=5,
        batch_size=32,
        target_update_every=20,
        head_size=64,
        replay=ReplayConfig(replay_capacity=5_000, replay_min_size=200, samples_per_insert=8.0),
    ),
    actor=ActorConfig(envs_per_group=32),
    learner=LearnerConfig(total_env_steps=200_000),
)

# The answer depends on an observation of 11 steps ago that has not been shown since.
_MEMORY_R2D2 = dataclasses.replace(
    _CARTPOLE_R2D2,
    env=EnvConfig(env_id="seed/Recall-v0"),
    agent=R2D2Config(
        sequence_length=20,
        burn_in=10,
        batch_size=32,
        discount_factor=0.99,
        target_update_every=50,
        head_size=64,
        replay=ReplayConfig(replay_capacity=5_000, replay_min_size=200, samples_per_insert=8.0),
    ),
    actor=ActorConfig(envs_per_group=16),
    learner=LearnerConfig(total_env_steps=60_000),
)

# The delay is longer than any sequence: the cue comes 41 rows before the question, and no
# sequence of 41 rows (burn-in, trained, bootstrap) holds both. The cue must come through the
# recurrent state that is stored with a sequence. That takes gates that start open, and a
# network that does not change the meaning of its states too fast: at twice the learning rate
# good returns did not last.
_MEMORY_HARD_R2D2 = dataclasses.replace(
    _MEMORY_R2D2,
    env=EnvConfig(env_id="seed/Recall-v0", env_kwargs='{"length": 40}'),
    network=NetworkConfig(torso="mlp", hidden_sizes=(64,), lstm_size=64, lstm_forget_bias=4.0),
    optimizer=dataclasses.replace(_MEMORY_R2D2.optimizer, learning_rate=5e-4),
    agent=R2D2Config(
        sequence_length=30,
        burn_in=10,
        batch_size=32,
        discount_factor=0.99,
        target_update_every=50,
        head_size=64,
        replay=ReplayConfig(replay_capacity=1_000, replay_min_size=200, samples_per_insert=8.0),
    ),
    learner=LearnerConfig(total_env_steps=300_000),
)

# Kapturowski et al. 2019, with the trained parts of sequences side by side rather than
# overlapping by half. The forget bias is the default of TensorFlow's and Sonnet's LSTM.
_ATARI_R2D2 = RunConfig(
    env=EnvConfig(env_id="ALE/Pong-v5"),
    network=NetworkConfig(
        torso="nature", lstm_size=512, lstm_forget_bias=1.0, frame_stack=4, see_last_step=True
    ),
    agent=R2D2Config(),
    optimizer=dataclasses.replace(
        _ADAM,
        learning_rate=1e-4,
        learning_rate_schedule="constant",
        epsilon=1e-3,
        max_grad_norm=80.0,
    ),
    actor=ActorConfig(envs_per_group=32),
    learner=LearnerConfig(total_env_steps=50_000_000),
)

# Short sequences and small batches give many updates in few env steps. Each sequence is
# trained on one and a half times, which keeps one core training while the other acts: a higher
# number would not give more updates a second. The ladder of epsilons ends at .004, and the
# target network follows within some 20,000 env steps.
_ATARI_R2D2_CPU = dataclasses.replace(
    _ATARI_R2D2,
    env=EnvConfig(env_id="ALE/Pong-v5", atari=AtariConfig(full_action_space=False)),
    network=NetworkConfig(
        torso="impala_shallow", lstm_size=128, frame_stack=4, center_images=True, see_last_step=True
    ),
    agent=R2D2Config(
        sequence_length=20,
        burn_in=4,
        batch_size=8,
        discount_factor=0.99,
        target_update_every=200,
        exploration_exponent=5.0,
        head_size=128,
        replay=ReplayConfig(replay_capacity=10_000, replay_min_size=1_000, samples_per_insert=1.5),
    ),
    optimizer=dataclasses.replace(_ADAM, learning_rate=5e-4),
    learner=LearnerConfig(total_env_steps=4_000_000),
)

PRESETS: dict[str, Preset] = {
    "catch-vtrace": Preset("Catch, 10 x 5 pixels, with V-trace: seconds.", _CATCH_VTRACE),
    "cartpole-vtrace": Preset("CartPole-v1 with V-trace: a minute on a laptop.", _CARTPOLE_VTRACE),
    "atari-vtrace": Preset(
        "Atari with V-trace and IMPALA's ResNet: the published recipe, for a GPU.", _ATARI_VTRACE
    ),
    "atari-vtrace-cpu": Preset(
        "Atari with V-trace and IMPALA's shallow network, sized for a few CPU cores.",
        _ATARI_VTRACE_CPU,
    ),
    "cartpole-r2d2": Preset("CartPole-v1 with R2D2: minutes on a laptop.", _CARTPOLE_R2D2),
    "memory-r2d2": Preset(
        "Recall, which needs memory, with R2D2: a minute on a laptop.", _MEMORY_R2D2
    ),
    "memory-hard-r2d2": Preset(
        "Recall of 40 steps, more than a sequence holds, with R2D2: minutes on a laptop.",
        _MEMORY_HARD_R2D2,
    ),
    "atari-r2d2-cpu": Preset(
        "Atari with R2D2 and IMPALA's shallow network, sized for a few CPU cores.",
        _ATARI_R2D2_CPU,
    ),
    "atari-r2d2": Preset("Atari with R2D2: the published recipe, for a GPU.", _ATARI_R2D2),
}

KIND = Kind("PRESET", "seed_rl.presets", tuple(PRESETS))


def full_preset_name(word: str) -> str:
    """Returns the preset that `word` names, begins, or spells with other capitals.

    Raises:
      ConfigError: `word` is none of the presets, or the beginning of several.
    """
    names = [*PRESETS, *installed(KIND)]
    if word in names or ":" in word:
        return word
    if name := full_name(word, names):
        return name
    of_env = [name for name in PRESETS if word.lower() in PRESETS[name].config.env.env_id.lower()]
    nearest = near_names(word, names) or of_env
    try:
        check_name(KIND, word)
    except ConfigError as error:
        raise ConfigError(f"{error}{did_you_mean(nearest)}") from None
    return word


def find_preset(name: str) -> Preset:
    """Returns a built-in preset, one of an installed package, or what module:Name names.

    Raises:
      ConfigError: there is no such preset, or it is no `Preset`.
    """
    if name in PRESETS:
        return PRESETS[name]
    found = load(KIND, name)
    if not (isinstance(found, Preset) and isinstance(found.config, RunConfig)):
        wanted = "a Preset(help, RunConfig) of learner.config.presets"
        raise ConfigError(expected(KIND.field, wanted, f"{name}, {found!r}"))
    return found
