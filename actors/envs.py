"""Environment settings -> a group of environments.

Called by the session before it opens a stream, and by each worker process. Importing it
registers `seed/*`.
A new kind of environment gets a branch in `make_vector_env` and a line in
tests/actors/test_env_contract.py.
"""

import dataclasses
import functools
import importlib
from pathlib import Path

import ale_py
import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec as RegisteredEnv
from gymnasium.vector import VectorEnv

from actors.atari import make_atari, make_rendered_atari
from actors.group import EnvGroup
from actors.growing import GrowingVectorEnv
from actors.vectorisation import SyncVectorEnv
from actors.video import RecordFirstEpisode
from actors.workers import WorkerVectorEnv
from seed.env_config import EnvConfig, env_settings_from_json
from seed.errors import ConfigError, expected, require

gymnasium.register_envs(ale_py)
gymnasium.register("seed/Catch-v0", entry_point="actors.games.catch:Catch")
gymnasium.register("seed/Null-v0", vector_entry_point="actors.games.null:NullVectorEnv")
gymnasium.register("seed/Recall-v0", entry_point="actors.games.recall:Recall")
gymnasium.register("seed/TMaze-v0", entry_point="actors.games.t_maze:TMaze")


def decode_settings(env_id: str, settings_json: str) -> EnvConfig:
    """Returns the environment of a learner's task; raises ConfigError naming a bad setting."""
    return dataclasses.replace(env_settings_from_json(settings_json or "{}"), env_id=env_id)


def make_group(
    config: EnvConfig,
    *,
    index: int,
    num_envs: int,
    base_seed: int,
    num_threads: int = 1,
    num_workers: int = 0,
) -> EnvGroup:
    """Returns the `index`-th group of an actor, with its own seed from `base_seed`.

    Games of "ALE/*" take .2 to .4 s each to make and to seed. So their group has only a few
    of them at first, and makes the others while it steps.
    """

    def make_part(size: int) -> VectorEnv:
        return make_vector_env(
            config, num_envs=size, num_threads=num_threads, num_workers=num_workers
        )

    whole = make_part if not config.is_atari else functools.partial(GrowingVectorEnv, make_part)
    vector_env = whole(num_envs)
    return EnvGroup(vector_env, index=index, rng_seed=_group_seed(base_seed, index))


def make_video_group(config: EnvConfig, path: Path, *, base_seed: int) -> EnvGroup:
    """Returns a group of one environment whose first full episode is written to `path`."""
    registered = _registered(config.env_id)

    def make_env() -> gymnasium.Env:
        if config.is_atari:
            return RecordFirstEpisode(make_rendered_atari(config.env_id, config.atari), path)
        env = _make_env(registered, {**config.make_kwargs, "render_mode": "rgb_array"})
        return RecordFirstEpisode(env, path)

    return EnvGroup(SyncVectorEnv(make_env, 1), index=0, rng_seed=_group_seed(base_seed, 0))


def make_vector_env(
    config: EnvConfig, *, num_envs: int, num_threads: int = 1, num_workers: int = 0
) -> VectorEnv:
    """Returns `num_envs` environments in NEXT_STEP autoreset.

    Args:
      config: which environment. "ALE/*" is stepped by the native emulator, an id with
        only a vectorised class by that class, and any other id by one object for each
        environment.
      num_envs: environments that step together.
      num_threads: threads that step them; only "ALE/*" uses more than one.
      num_workers: processes that step them; 0 for the calling process.

    Raises:
      ConfigError: an unknown id or argument, or workers for an environment that cannot use
        them.
      EnvironmentFailedError: a worker ended.
    """
    registered = _registered(config.env_id)
    if config.is_atari or registered.entry_point is None:
        require(num_workers == 0, "env_workers", f"0 for {config.env_id}", num_workers)
    if config.is_atari:
        game = registered.kwargs["game"]
        return make_atari(game, config.atari, num_envs=num_envs, num_threads=num_threads)
    if registered.entry_point is None:
        return gymnasium.make_vec(registered, num_envs=num_envs, **config.make_kwargs)
    make_env = functools.partial(make_single_env, config)
    if num_workers:
        return WorkerVectorEnv(make_env, num_envs, num_workers)
    return SyncVectorEnv(make_env, num_envs)


def make_single_env(config: EnvConfig) -> gymnasium.Env:
    """Returns one environment; a worker process calls it too, so it imports the id's module."""
    return _make_env(_registered(config.env_id), config.make_kwargs)


def _registered(env_id: str) -> RegisteredEnv:
    """Returns the entry of an id: "Env-v0", or "module:Env-v0" to import a module first."""
    module, _, name = env_id.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        return gymnasium.spec(name)
    except (ImportError, gymnasium.error.Error) as error:
        wanted = "an environment registered on the actor's machine"
        raise ConfigError(f"{expected('env_id', wanted, repr(env_id))} ({error})") from error


def _make_env(registered: RegisteredEnv, kwargs: dict) -> gymnasium.Env:
    try:
        # The checker writes many warnings to stderr. `SpaceAdapter` checks what matters.
        return gymnasium.make(registered, disable_env_checker=True, **kwargs)
    except (TypeError, gymnasium.error.Error) as error:
        raise ConfigError(
            f"{expected('env_kwargs', f'arguments of {registered.id}', kwargs)} ({error})"
        ) from error


def _group_seed(base_seed: int, index: int) -> int:
    # 30 bits: environments add their index, and ALE takes an int32.
    return int(np.random.SeedSequence((base_seed, index)).generate_state(1)[0] >> 2)
