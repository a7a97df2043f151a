"""actors/growing.py: parts that join one by one, scripted ones and ALE's."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from actors.envs import make_group, make_vector_env
from actors.growing import GrowingVectorEnv, part_sizes
from seed.env_config import AtariConfig, EnvConfig


class Clock(VectorEnv):
    """Observes (seed of the last seeded reset, steps since the last reset); rewards 1."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    single_observation_space = spaces.Box(-1, 1e9, (2,), np.float64)
    single_action_space = spaces.Discrete(2)

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.closed = False
        self._rows = np.full((num_envs, 2), -1.0)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        if seed is not None:
            self._rows[:, 0] = seed + np.arange(self.num_envs)
        self._rows[:, 1] = 0
        return self._rows.copy(), {}

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        assert len(actions) == self.num_envs
        self._rows[:, 1] += 1
        nothing = np.zeros(self.num_envs, bool)
        return self._rows.copy(), np.ones(self.num_envs), nothing, nothing, {}

    def close_extras(self, **kwargs: Any) -> None:
        self.closed = True


class Clocks:
    """Makes parts, and keeps them."""

    def __init__(self) -> None:
        self.made: list[Clock] = []

    def __call__(self, num_envs: int) -> Clock:
        self.made.append(Clock(num_envs))
        return self.made[-1]


def _step(env: GrowingVectorEnv) -> tuple[list, list, list | None]:
    """Returns seeds and times in the observation of a step, and which rows wait."""
    observation, rewards, terminated, _, info = env.step(np.zeros(env.num_envs, np.int64))
    assert len(rewards) == len(terminated) == env.num_envs
    waiting = info["is_waiting"].astype(int).tolist() if "is_waiting" in info else None
    return observation[:, 0].tolist(), observation[:, 1].tolist(), waiting


@pytest.mark.parametrize(
    ("num_envs", "sizes"),
    [(1, [1]), (2, [2]), (4, [2, 2]), (32, [2, 6, 16, 8]), (64, [2, 6, 16, 16, 16, 8])],
)
def test_first_part_is_small_and_the_parts_grow(num_envs: int, sizes: list[int]) -> None:
    """Two environments step soon; few parts hold the others."""
    assert part_sizes(num_envs) == sizes


def test_parts_join_as_drawn() -> None:
    """Each row of the drawing, with the seed that the environment has in a whole group."""
    parts = Clocks()
    env = GrowingVectorEnv(parts, 12)  # 2, 6 and 4
    observation, _ = env.reset(seed=50)
    assert observation[:, 0].tolist() == [50, 51] + [50] * 10
    assert len(parts.made) == 1
    joined = [50, 51, *range(52, 58)]
    assert _step(env) == ([50, 51] + [50] * 10, [1, 1] + [1] * 10, [0, 0] + [1] * 10)
    assert (len(parts.made), env.num_ready) == (1, 2)
    assert _step(env) == ([50, 51] + [50] * 10, [2, 2] + [2] * 10, [0, 0] + [1] * 10)
    assert _step(env) == (joined + [50] * 4, [3, 3] + [0] * 6 + [3] * 4, [0, 0] + [1] * 10)
    assert (len(parts.made), env.num_ready) == (3, 8)
    last = [58, 59, 60, 61]
    assert _step(env) == (joined + last, [4, 4] + [1] * 6 + [0] * 4, [0] * 8 + [1] * 4)
    assert _step(env) == (joined + last, [5, 5] + [2] * 6 + [1] * 4, None)
    env.close()
    assert all(part.closed for part in parts.made)


def test_reset_while_parts_are_missing_keeps_them_coming() -> None:
    """After a lost connection the group goes on growing, with the seeds of the first reset."""
    env = GrowingVectorEnv(Clocks(), 4)
    env.reset(seed=7)
    for _ in range(2):
        _step(env)
    env.reset()
    rows = [_step(env) for _ in range(3)]
    env.close()
    assert [seeds for seeds, _, _ in rows] == [[7, 8, 7, 7], [7, 8, 9, 10], [7, 8, 9, 10]]
    assert rows[-1][2] is None


def test_part_that_cannot_be_reset_raises_in_the_step_that_it_would_join() -> None:
    """The error of the other thread reaches the main thread."""

    class Broken(Clock):
        def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
            if seed != 1:
                raise RuntimeError("no such ROM")
            return super().reset(seed=seed)

    env = GrowingVectorEnv(Broken, 4)
    env.reset(seed=1)
    for _ in range(2):
        _step(env)
    with pytest.raises(RuntimeError, match="no such ROM"):
        _step(env)
    env.close()


@pytest.mark.parametrize("life_loss_terminal", [False, True])
def test_games_that_join_later_play_as_if_all_had_been_made_at_once(
    life_loss_terminal: bool,
) -> None:
    """The same seeds and actions give each game of a growing group the same screens, and no
    row before its first one counts as an episode or as a step."""
    atari = AtariConfig(screen_size=42, life_loss_terminal=life_loss_terminal)
    config = EnvConfig(env_id="ALE/Breakout-v5", atari=atari)
    group = make_group(config, index=0, num_envs=4, base_seed=1)
    grown = [group.reset(), *(group.step(np.ones(4, np.int64)) for _ in range(6))]
    group.close()
    whole = make_vector_env(config, num_envs=4)
    seed = group.rng_seed
    screens = [whole.reset(seed=seed)[0], *(whole.step(np.ones(4, np.int64))[0] for _ in range(6))]
    whole.close()
    for env, joined_at in ((0, 0), (1, 0), (2, 3), (3, 3)):
        for t, row in enumerate(grown[joined_at:]):
            assert (row.observations[0][env] == screens[t][env]).all()
            assert bool(row.is_first[env]) is (t == 0)
    assert all(row.is_first[2:].all() and not row.rewards[2:].any() for row in grown[:4])
    assert not any(row.episodes for row in grown)
