"""Null: observations of the shape asked for, and episodes of the length asked for."""

import numpy as np

from actors.games.null import NullVectorEnv


def test_observation_and_actions_have_the_sizes_asked_for() -> None:
    """Every step returns the same array, so that nothing is copied."""
    env = NullVectorEnv(3, shape=(4, 5), num_actions=7)
    first, _ = env.reset()
    later, rewards, *_ = env.step(np.zeros(3, np.int64))
    assert later is first
    assert first.shape == (3, 4, 5) and first.dtype == np.uint8
    assert not first.any() and not rewards.any()
    assert env.single_action_space.n == 7  # type: ignore[attr-defined]


def test_episodes_are_truncated_after_their_length_and_then_reset() -> None:
    """An episode of length 2 has two steps, and the next step resets."""
    env = NullVectorEnv(2, episode_length=2)
    env.reset()
    rows = [env.step(np.zeros(2, np.int64)) for _ in range(6)]
    assert [row[3].tolist() for row in rows] == [[False] * 2, [True] * 2, [False] * 2] * 2
    assert not any(row[2].any() for row in rows)


def test_episodes_never_end_by_default() -> None:
    """A measurement then sees steps and no resets."""
    env = NullVectorEnv(1)
    env.reset()
    assert not any(env.step(np.zeros(1, np.int64))[3].any() for _ in range(100))


def test_reset_starts_the_episode_again() -> None:
    """Episodes after a reset in the middle are as long as all others."""
    env = NullVectorEnv(1, episode_length=2)
    env.reset()
    env.step(np.zeros(1, np.int64))
    env.reset()
    assert [bool(env.step(np.zeros(1, np.int64))[3][0]) for _ in range(2)] == [False, True]
