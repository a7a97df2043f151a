"""The time limit of a run, `EnvConfig.max_episode_steps`, for each kind of environment.

Called where environments are made. An episode's step N is truncated; the reset is not counted. A
limit that the environment has itself still holds.
"""

import dataclasses
import inspect
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec as RegisteredEnv
from gymnasium.envs.registration import load_env_creator
from gymnasium.wrappers import TimeLimit

from seed.env_config import AtariConfig, EnvConfig
from seed.errors import ConfigError, expected


def limited(env: gymnasium.Env, config: EnvConfig) -> gymnasium.Env:
    """Returns one environment with the time limit, if there is one."""
    if config.max_episode_steps is None:
        return env
    return TimeLimit(env, config.max_episode_steps)


def limited_atari(config: EnvConfig) -> AtariConfig:
    """Returns the settings of the native emulator, which counts frames, with the time limit."""
    atari, steps = config.atari, config.max_episode_steps
    if steps is None:
        return atari
    frames = min(atari.max_frames_per_episode, steps * atari.frame_skip)
    return dataclasses.replace(atari, max_frames_per_episode=frames)


def limited_kwargs(registered: RegisteredEnv, config: EnvConfig) -> dict[str, Any]:
    """Returns the keyword arguments of a class that steps all environments itself.

    Such a class resets its environments itself, so that only it can end an episode. By
    Gymnasium's convention it takes the limit as `max_episode_steps`.

    Raises:
      ConfigError: the class does not take it.
    """
    steps = config.max_episode_steps
    if steps is None:
        return config.make_kwargs
    if not _takes_limit(registered):
        wanted = f"None for {registered.id}, whose vectorised class takes no max_episode_steps"
        raise ConfigError(expected("max_episode_steps", wanted, steps))
    own = config.make_kwargs.get("max_episode_steps", registered.max_episode_steps)
    return {**config.make_kwargs, "max_episode_steps": min(steps, own or steps)}


def _takes_limit(registered: RegisteredEnv) -> bool:
    creator: Any = registered.vector_entry_point
    if isinstance(creator, str):
        creator = load_env_creator(creator)
    parameters = inspect.signature(creator).parameters.values()
    return any(
        parameter.name == "max_episode_steps" or parameter.kind is parameter.VAR_KEYWORD
        for parameter in parameters
    )
