"""A time limit cuts every kind of environment at the same step, with autoreset and in videos."""

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from actors.envs import make_group, make_video_group
from actors.group import EnvGroup
from seed.env_config import AtariConfig, EnvConfig, env_settings_from_json, env_settings_to_json
from seed.errors import ConfigError
from tests.actors import odd_envs  # noqa: F401 (registers odd/*)

LIMIT = 6
CART_POLES = "gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv"


class Unlimited(CartPoleVectorEnv):
    """A vectorised class that takes no time limit."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)


gymnasium.register("limits/Vector-v0", vector_entry_point=CART_POLES)
gymnasium.register("limits/Short-v0", vector_entry_point=CART_POLES, max_episode_steps=4)
gymnasium.register("limits/Unlimited-v0", vector_entry_point=f"{__name__}:Unlimited")

ENDLESS = EnvConfig(env_id="odd/Fragile-v0", env_kwargs='{"fails_at": 0}', max_episode_steps=LIMIT)
ATARI = EnvConfig(env_id="ALE/Breakout-v5", max_episode_steps=LIMIT)
NOOPS = EnvConfig(env_id="ALE/Breakout-v5", atari=AtariConfig(noop_max=30), max_episode_steps=LIMIT)
NULL = EnvConfig(env_id="seed/Null-v0", max_episode_steps=LIMIT)
VECTOR = EnvConfig(env_id="limits/Vector-v0", max_episode_steps=LIMIT)


def ends(group: EnvGroup, num_steps: int) -> list[list[int]]:
    """Returns for each step the environments whose episode it truncated; closes the group."""
    group.reset()
    rows = [group.step(np.zeros(group.num_envs, np.int64)) for _ in range(num_steps)]
    group.close()
    lengths = {episode.length for row in rows for episode in row.episodes}
    assert lengths == {LIMIT}
    return [np.flatnonzero(row.truncated).tolist() for row in rows]


@pytest.mark.parametrize("config", [ENDLESS, ATARI, NOOPS, NULL, VECTOR], ids=lambda c: c.env_id)
def test_every_kind_of_environment_is_cut_at_the_limit(config: EnvConfig) -> None:
    """The step that resets is not counted: episodes end at steps 6, 13 and 20."""
    group = make_group(config, index=0, num_envs=2, base_seed=1)
    wanted = [[0, 1] if step in (6, 13, 20) else [] for step in range(1, 21)]
    assert ends(group, 20) == wanted


def test_environment_in_a_worker_is_cut_at_the_limit() -> None:
    """The limit travels to the process that makes the environment."""
    config = EnvConfig(env_id="seed/TMaze-v0", max_episode_steps=LIMIT)
    group = make_group(config, index=0, num_envs=2, base_seed=1, num_workers=1)
    assert ends(group, 7)[5] == [0, 1]


@pytest.mark.parametrize(
    "config", [EnvConfig(env_id="seed/Catch-v0", max_episode_steps=LIMIT), ATARI]
)
def test_recorded_episode_is_cut_at_the_limit(tmp_path: Path, config: EnvConfig) -> None:
    """The video ends there, too."""
    group = make_video_group(config, tmp_path / "video.mp4", base_seed=1)
    assert ends(group, 7)[5] == [0]


@pytest.mark.parametrize(
    "config",
    [
        EnvConfig(env_id="seed/Catch-v0", max_episode_steps=1_000),
        EnvConfig(env_id="limits/Short-v0", max_episode_steps=1_000),
        EnvConfig(
            env_id="ALE/Pong-v5",
            max_episode_steps=1_000,
            atari=AtariConfig(max_frames_per_episode=16),
        ),
    ],
    ids=lambda config: config.env_id,
)
def test_limit_of_the_environment_still_holds(config: EnvConfig) -> None:
    """A longer limit lengthens no episode: Catch has 9 steps, the other two have 4."""
    group = make_group(config, index=0, num_envs=1, base_seed=1)
    group.reset()
    done = []
    for _ in range(9):
        row = group.step(np.zeros(1, np.int64))
        done.append(bool(row.terminated[0] | row.truncated[0]))
    group.close()
    assert done.index(True) == (8 if config.env_id == "seed/Catch-v0" else 3)


def test_environment_that_fails_starts_a_full_episode() -> None:
    """The steps before the failure do not count for the environment that replaces it."""
    config = EnvConfig(env_id="odd/Fragile-v0", env_kwargs='{"fails_at": 4}', max_episode_steps=3)
    group = make_group(config, index=0, num_envs=1, base_seed=1)
    group.reset()
    rows = [group.step(np.zeros(1, np.int64)) for _ in range(8)]
    group.close()
    assert [bool(row.truncated[0]) for row in rows] == [False, False, True, False] * 2


def test_vectorised_class_without_a_limit_is_refused() -> None:
    """Nobody else can end its episodes, so that the limit would not hold."""
    config = EnvConfig(env_id="limits/Unlimited-v0", max_episode_steps=LIMIT)
    wanted = "max_episode_steps: expected None for limits/Unlimited-v0"
    with pytest.raises(ConfigError, match=wanted):
        make_group(config, index=0, num_envs=2, base_seed=1)


@pytest.mark.parametrize("steps", [0, -1])
def test_limit_below_one_step_is_refused(steps: int) -> None:
    """No episode would have a step."""
    with pytest.raises(ConfigError, match="max_episode_steps: expected at least 1"):
        EnvConfig(max_episode_steps=steps)


def test_limit_travels_in_the_task() -> None:
    """Actors on other machines apply it."""
    for config in (ENDLESS, EnvConfig()):
        assert env_settings_from_json(env_settings_to_json(config)) == config


def test_limit_of_another_type_is_refused() -> None:
    """A learner of another version cannot send nonsense."""
    settings: dict[str, Any] = {"max_episode_steps": "6"}
    with pytest.raises(ConfigError, match="max_episode_steps"):
        env_settings_from_json(json.dumps(settings))
