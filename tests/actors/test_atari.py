"""The traps of ALE's vectorised emulator, each as a test (shared environments, two games)."""

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from ale_py.vector_env import AtariVectorEnv

import actors.atari
from actors.atari import make_atari
from actors.envs import make_group
from actors.group import EnvGroup
from seed.env_config import AtariConfig, EnvConfig
from seed.errors import SpecError
from seed.wire import EnvOutputs


def _rows(group: EnvGroup, num_steps: int) -> list[EnvOutputs]:
    random = np.random.default_rng(1)
    rows = [group.reset()]
    for _ in range(num_steps):
        actions = random.integers(0, group.spec.action.num_values, group.num_envs)
        rows.append(group.step(actions))
    return rows


@pytest.fixture(scope="module")
def pong() -> Iterator[EnvGroup]:
    """Two games of Pong with default settings."""
    group = make_group(EnvConfig(env_id="ALE/Pong-v5"), index=0, num_envs=2, base_seed=1)
    yield group
    group.close()


@pytest.fixture(scope="module")
def life_loss_rows() -> list[EnvOutputs]:
    """Three hundred steps of Breakout in which lives are lost and games end."""
    atari = AtariConfig(
        life_loss_terminal=True, full_action_space=False, repeat_action_probability=0
    )
    config = EnvConfig(env_id="ALE/Breakout-v5", atari=atari)
    group = make_group(config, index=0, num_envs=2, base_seed=1)
    rows = _rows(group, 300)
    group.close()
    return rows


def test_observations_are_single_gray_frames_that_move(pong: EnvGroup) -> None:
    """A Pong screen is uint8 [84, 84] without a stack axis, and differs between steps."""
    (leaf,) = pong.spec.observations
    assert (leaf.dtype, leaf.shape, leaf.minimum, leaf.maximum) == ("uint8", (84, 84), 0, 255)
    # The serve of Pong leaves the screen still for a second.
    screens = [row.observations[0] for row in _rows(pong, 40)[20:]]
    assert all((a != b).any() for a, b in zip(screens, screens[1:], strict=False))


def test_action_set_is_the_full_one_by_default(pong: EnvGroup) -> None:
    """All 18 actions, so that one network shape serves every game."""
    assert pong.spec.action.num_values == 18


@pytest.mark.parametrize("action", [-1, 18])
def test_out_of_range_action_is_refused(pong: EnvGroup, action: int) -> None:
    """An action that would make ale-py wait forever raises before it is sent."""
    pong.reset()
    with pytest.raises(SpecError, match=r"actions: expected 0 \.\. 17"):
        pong.step(np.array([0, action]))


def test_colour_observations_have_three_channels() -> None:
    """Without grayscale a screen is [84, 84, 3]."""
    atari = AtariConfig(grayscale=False, screen_size=42)
    env = make_atari("pong", atari, num_envs=1, num_threads=1)
    observation, _ = env.reset()
    assert observation.shape == (1, 42, 42, 3)
    assert env.single_observation_space.shape == (42, 42, 3)


def test_game_is_truncated_at_its_frame_limit() -> None:
    """A limit of 80 frames at 4 a step truncates after 20 steps, not terminates."""
    config = EnvConfig(env_id="ALE/Pong-v5", atari=AtariConfig(max_frames_per_episode=80))
    group = make_group(config, index=0, num_envs=1, base_seed=1)
    rows = _rows(group, 22)
    assert [t for t, row in enumerate(rows) if row.truncated[0]] == [20]
    assert [t for t, row in enumerate(rows) if row.is_first[0]] == [0, 21]
    assert not any(row.terminated[0] for row in rows)
    assert rows[20].episodes[0].length == 20


def test_life_loss_terminates_and_the_game_goes_on(life_loss_rows: list[EnvOutputs]) -> None:
    """Of Breakout's five terminated rows a game, only the last is followed by a first row."""
    terminated = np.stack([row.terminated for row in life_loss_rows])
    is_first = np.stack([row.is_first for row in life_loss_rows])
    assert is_first[1:].any()
    for env in range(2):
        starts = np.flatnonzero(is_first[:, env])
        for start, end in zip(starts, starts[1:], strict=False):
            assert terminated[start:end, env].sum() == 5
            assert terminated[end - 1, env]


def test_episode_statistics_span_all_lives(life_loss_rows: list[EnvOutputs]) -> None:
    """With life-loss terminals an episode is still the full game."""
    is_first = np.stack([row.is_first for row in life_loss_rows])
    rewards = np.stack([row.rewards for row in life_loss_rows])
    episodes = [episode for row in life_loss_rows for episode in row.episodes]
    assert episodes
    for env in range(2):
        starts = np.flatnonzero(is_first[:, env])
        games = [slice(a, b) for a, b in zip(starts, starts[1:], strict=False)]
        assert [(e.episode_return, e.length) for e in episodes if e.env == env] == [
            (rewards[game, env].sum(), game.stop - game.start - 1) for game in games
        ]


def test_rewards_are_raw() -> None:
    """Ms. Pacman's pellets count 10, not a clipped 1."""
    config = EnvConfig(env_id="ALE/MsPacman-v5")
    group = make_group(config, index=0, num_envs=1, base_seed=1)
    assert max(row.rewards[0] for row in _rows(group, 120)) >= 10


def test_every_argument_of_the_emulator_is_set_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """No default of ale-py decides anything, so no change of a default can change a run."""
    passed: dict[str, Any] = {}

    class Emulator(AtariVectorEnv):
        def __init__(self, game: str, num_envs: int, **kwargs: Any) -> None:
            passed.update(kwargs)
            super().__init__(game, num_envs, **kwargs)

    monkeypatch.setattr(actors.atari, "AtariVectorEnv", Emulator)
    make_atari("pong", AtariConfig(), num_envs=1, num_threads=1)
    # Of an axis that is not used.
    unused = {"continuous_action_threshold"}
    named = set(inspect.signature(AtariVectorEnv).parameters) - {"game", "num_envs"}
    assert set(passed) == named - unused
