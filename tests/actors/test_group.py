"""actors/group.py: rows, flags and statistics, over a scripted environment."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from actors.group import EnvGroup
from seed.errors import EnvironmentFailedError, SpecError
from seed.wire import Episode


class Scripted(VectorEnv):
    """Emits the rows of a script: (rewards, terminated, truncated[, is_first])."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    single_observation_space = spaces.Discrete(9)
    single_action_space = spaces.Discrete(2)

    def __init__(self, *script: tuple) -> None:
        self._script = list(script)
        self.num_envs = len(script[0][0])
        self.seeds: list[int | None] = []

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        self.seeds.append(seed)
        return np.zeros(self.num_envs, np.int64), {}

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        rewards, terminated, truncated, *is_first = self._script.pop(0)
        info = {"is_first": np.array(is_first[0], bool)} if is_first else {}
        flags = np.array(terminated, bool), np.array(truncated, bool)
        return np.zeros(self.num_envs, np.int64), np.array(rewards, np.float64), *flags, info


def _play(group: EnvGroup, num_steps: int) -> list:
    actions = np.zeros(group.num_envs, np.int64)
    return [group.reset(), *(group.step(actions) for _ in range(num_steps))]


def test_row_after_an_end_is_first_and_has_no_reward() -> None:
    """The reset row carries neither the reward nor the flags of the row before."""
    script = Scripted(([1, 2], [0, 1], [0, 0]), ([1, 9], [0, 0], [1, 0]), ([9, 4], [0, 0], [0, 0]))
    rows = _play(EnvGroup(script, index=0, rng_seed=1), 3)
    assert [row.is_first.tolist() for row in rows] == [
        [True, True],
        [False, False],
        [False, True],
        [True, False],
    ]
    assert [row.rewards.tolist() for row in rows[1:]] == [[1, 2], [1, 0], [0, 4]]
    assert all(row.rewards.dtype == np.float32 for row in rows)


def test_episode_is_reported_with_its_last_row() -> None:
    """Return and length count each reward and action once, and skip the reset row."""
    script = Scripted(
        ([1, 2], [0, 1], [0, 0]),
        ([1, 9], [0, 0], [1, 0]),
        ([9, 4], [0, 0], [0, 0]),
        ([5, 4], [1, 0], [0, 1]),
    )
    rows = _play(EnvGroup(script, index=0, rng_seed=1), 4)
    assert [list(row.episodes) for row in rows] == [
        [],
        [Episode(1, 2.0, 1)],
        [Episode(0, 2.0, 2)],
        [],
        [Episode(0, 5.0, 1), Episode(1, 8.0, 2)],
    ]


def test_game_that_outlives_terminated_is_reported_when_the_next_begins() -> None:
    """With info["is_first"] a terminated row neither ends the statistics nor resets them."""
    script = Scripted(
        ([1], [1], [0], [0]), ([2], [0], [0], [0]), ([3], [1], [0], [0]), ([9], [0], [0], [1])
    )
    rows = _play(EnvGroup(script, index=0, rng_seed=1), 4)
    assert [bool(row.is_first[0]) for row in rows] == [True, False, False, False, True]
    assert [list(row.episodes) for row in rows] == [[], [], [], [], [Episode(0, 6.0, 3)]]


def test_returns_are_summed_in_double_precision() -> None:
    """A sum of a tenth a thousand times has no float32 error."""
    steps = [([0.1], [0], [0])] * 999 + [([0.1], [1], [0])]
    rows = _play(EnvGroup(Scripted(*steps), index=0, rng_seed=1), 1000)
    assert rows[-1].episodes[0].episode_return == pytest.approx(100, rel=1e-12)


def test_only_the_first_reset_is_seeded_and_resets_forget_statistics() -> None:
    """A reset in the middle of an episode starts from zero and reports nothing."""
    script = Scripted(([1], [0], [0]), ([2], [1], [0]))
    group = EnvGroup(script, index=0, rng_seed=5)
    _play(group, 1)
    rows = _play(group, 1)
    assert script.seeds == [5, None]
    assert list(rows[-1].episodes) == [Episode(0, 2.0, 1)]


def test_environment_error_names_the_group_and_keeps_its_cause() -> None:
    """A native environment's exception becomes the cause of an EnvironmentFailedError."""
    group = EnvGroup(Scripted(([1], [0], [0])), index=3, rng_seed=1)
    _play(group, 1)
    with pytest.raises(EnvironmentFailedError, match="group 3: IndexError") as caught:
        group.step(np.zeros(1, np.int64))
    assert isinstance(caught.value.__cause__, IndexError)


def test_other_autoreset_modes_are_refused() -> None:
    """SAME_STEP hides the last observation of an episode, so the group refuses it."""
    script = Scripted(([1], [0], [0]))
    script.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
    with pytest.raises(SpecError, match="autoreset_mode: expected"):
        EnvGroup(script, index=0, rng_seed=1)
