"""Environment settings -> a group of environments.

Called by the session before it opens a stream, and by each worker process. Importing it
registers `seed/*`.
A new kind of environment gets a branch in `make_vector_env` and a line in
tests/actors/test_env_contract.py.
"""

import contextlib
import dataclasses
import functools
from pathlib import Path

import ale_py
import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from actors.atari import make_atari, make_rendered_atari
from actors.checked_vector import CheckedVectorEnv
from actors.construction import find_registered, make_env, make_vectors
from actors.group import EnvGroup
from actors.growing import GrowingVectorEnv
from actors.time_limit import limited, limited_atari, limited_kwargs
from actors.vectorisation import SyncVectorEnv
from actors.video import (
    RENDER_MODE,
    FirstEpisode,
    RecordFirstEpisode,
    check_can_render,
    prepare_to_render,
)
from actors.video_file import require_package
from actors.workers import WorkerVectorEnv
from seed.env_config import EnvConfig, env_settings_from_json
from seed.errors import EnvironmentFailedError, require

gymnasium.register_envs(ale_py)
gymnasium.register("seed/Catch-v0", entry_point="actors.games.catch:Catch")
gymnasium.register("seed/Null-v0", vector_entry_point="actors.games.null:NullVectorEnv")
gymnasium.register("seed/Recall-v0", entry_point="actors.games.recall:Recall")
gymnasium.register("seed/TMaze-v0", entry_point="actors.games.t_maze:TMaze")


def decode_settings(env_id: str, settings_json: str) -> EnvConfig:
    """Returns the environment of a learner's task; raises ConfigError naming a bad setting."""
    return dataclasses.replace(env_settings_from_json(settings_json or "{}"), env_id=env_id)


def check_env_id(config: EnvConfig) -> None:
    """Checks an id before anything is started; makes no environment.

    What the id's module raises when it is imported is left to the actors, whose logs show it.

    Raises:
      ConfigError: no such module or id.
    """
    with contextlib.suppress(EnvironmentFailedError):
        find_registered(config)


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
            config,
            num_envs=size,
            num_threads=num_threads,
            num_workers=num_workers,
            first_index=index * num_envs,
        )

    whole = make_part if not config.is_atari else functools.partial(GrowingVectorEnv, make_part)
    vector_env = whole(num_envs)
    return EnvGroup(vector_env, index=index, rng_seed=_group_seed(base_seed, index))


def make_video_group(config: EnvConfig, path: Path, *, base_seed: int) -> EnvGroup:
    """Returns a group of one environment whose first full episode is written to `path`.

    Raises:
      ConfigError: a package is missing, or the environment cannot render.
    """
    prepare_to_render()
    check_video(config)
    registered = find_registered(config)
    episode = FirstEpisode(path)

    def make_recorded() -> gymnasium.Env:
        if config.is_atari:
            game = make_rendered_atari(config.env_id, config.atari)
            return RecordFirstEpisode(limited(game, config), episode)
        env = make_env(registered, {**config.make_kwargs, "render_mode": RENDER_MODE})
        return RecordFirstEpisode(limited(env, config), episode)

    return EnvGroup(SyncVectorEnv(make_recorded, 1), index=0, rng_seed=_group_seed(base_seed, 0))


def check_video(config: EnvConfig) -> None:
    """Raises ConfigError if no video can be made of an environment on this machine."""
    check_can_render(find_registered(config))
    if config.is_atari:
        require_package("cv2")  # scales the screens


def make_vector_env(
    config: EnvConfig,
    *,
    num_envs: int,
    num_threads: int = 1,
    num_workers: int = 0,
    first_index: int = 0,
) -> VectorEnv:
    """Returns `num_envs` environments in NEXT_STEP autoreset.

    Args:
      config: which environment. "ALE/*" is stepped by the native emulator, an id with
        only a vectorised class by that class, and any other id by one object for each
        environment.
      num_envs: environments that step together.
      num_threads: threads that step them; only "ALE/*" uses more than one.
      num_workers: processes that step them; 0 for the calling process.
      first_index: number of the first of them, in messages.

    Raises:
      ConfigError: an unknown id or argument, or workers for an environment that cannot use
        them.
      EnvironmentFailedError: a worker ended, or the environment's own code raised.
    """
    registered = find_registered(config)
    if config.is_atari or registered.entry_point is None:
        require(num_workers == 0, "env_workers", f"0 for {config.env_id}", num_workers)
    if config.is_atari:
        game = registered.kwargs["game"]
        atari = limited_atari(config)
        return make_atari(game, atari, num_envs=num_envs, num_threads=num_threads)
    if registered.entry_point is None:
        kwargs = limited_kwargs(registered, config)
        vector_env = make_vectors(registered, num_envs, kwargs)
        # Our own are right, and are there to measure all the rest.
        if registered.namespace == "seed":
            return vector_env
        return CheckedVectorEnv(vector_env, first_index=first_index)
    make_single = functools.partial(make_single_env, config)
    if num_workers:
        return WorkerVectorEnv(make_single, num_envs, num_workers, first_index=first_index)
    return SyncVectorEnv(make_single, num_envs, first_index=first_index)


def make_single_env(config: EnvConfig) -> gymnasium.Env:
    """Returns one environment; a worker process calls it too, so it imports the id's module."""
    return limited(make_env(find_registered(config), config.make_kwargs), config)


def _group_seed(base_seed: int, index: int) -> int:
    # 30 bits: environments add their index, and ALE takes an int32.
    return int(np.random.SeedSequence((base_seed, index)).generate_state(1)[0] >> 2)
