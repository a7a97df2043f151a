"""What every environment must keep to, as checks that a new environment joins in one line.

Each check looks at one recorded rollout with random actions, so that dear
environments are made once.
"""

import functools
from typing import NamedTuple

import numpy as np
import pytest

from actors.envs import make_group
from seed.env_config import EnvConfig
from seed.specs import EnvSpec
from seed.wire import EnvOutputs, Episode

NUM_ENVS = 2
NUM_STEPS = 300


class Rollout(NamedTuple):
    """A reset and `NUM_STEPS` steps of a group."""

    spec: EnvSpec
    rows: list[EnvOutputs]
    second_reset: EnvOutputs
    """A reset in the middle of what came after."""

    def column(self, name: str) -> np.ndarray:
        """Returns one field of all rows, [T, E]."""
        return np.stack([getattr(row, name) for row in self.rows])


def record(config: EnvConfig) -> Rollout:
    """Steps a new group of `config` with the same random actions each time."""
    group = make_group(config, index=0, num_envs=NUM_ENVS, base_seed=7)
    num_actions = group.spec.action.num_values
    actions = np.random.default_rng(0).integers(0, num_actions, (NUM_STEPS, NUM_ENVS))
    rows = [group.reset()]
    rows += [group.step(row) for row in actions]
    group.step(actions[0])
    rollout = Rollout(group.spec, rows, group.reset())
    group.close()
    return rollout


recorded = functools.cache(record)


def check_observations_match_the_spec(config: EnvConfig) -> None:
    """Every leaf has its dtype, shape and bounds in every row."""
    spec, rows, _ = recorded(config)
    for row in rows:
        for leaf, array in zip(spec.observations, row.observations, strict=True):
            assert array.dtype.name == leaf.dtype, leaf.name
            assert array.shape == (NUM_ENVS, *leaf.shape), leaf.name
            if leaf.is_discrete:
                assert array.min() >= 0 and array.max() < leaf.num_values, leaf.name
            else:
                assert array.min() >= leaf.minimum, leaf.name
                assert array.max() <= leaf.maximum, leaf.name


def check_rows_have_their_types(config: EnvConfig) -> None:
    """Rewards are float32 [E], flags are bool [E], and all rows are from group 0."""
    for row in recorded(config).rows:
        assert row.group == 0
        assert row.rewards.dtype == np.float32 and row.rewards.shape == (NUM_ENVS,)
        for flags in (row.is_first, row.terminated, row.truncated):
            assert flags.dtype == bool and flags.shape == (NUM_ENVS,)


def check_episodes_begin_where_the_last_one_ended(config: EnvConfig) -> None:
    """A first row follows every end and nothing else; a lost life may end without one."""
    rollout = recorded(config)
    is_first, terminated = rollout.column("is_first"), rollout.column("terminated")
    truncated = rollout.column("truncated")
    assert is_first[0].all()
    assert is_first[1:].any(), "no episode ended in the rollout: the checks saw nothing"
    assert not (is_first & (terminated | truncated)).any()
    assert not (is_first[1:] & ~(terminated | truncated)[:-1]).any()
    assert (is_first[1:] | ~truncated[:-1]).all()
    if not (config.is_atari and config.atari.life_loss_terminal):
        assert (is_first[1:] | ~terminated[:-1]).all()


def check_first_rows_have_no_reward(config: EnvConfig) -> None:
    """No action led to a first row, so it has no reward."""
    rollout = recorded(config)
    assert not rollout.column("rewards")[rollout.column("is_first")].any()


def check_episode_statistics_are_sums_of_rewards(config: EnvConfig) -> None:
    """Statistics equal a literal sum over the rows from each reset to the next."""
    rollout = recorded(config)
    reported = [episode for row in rollout.rows for episode in row.episodes]
    for env in range(NUM_ENVS):
        wanted = _summed_episodes(rollout, env)
        got = [episode for episode in reported if episode.env == env]
        # The rollout may stop between an end and the reset that shows it.
        assert len(got) - len(wanted) in (0, 1)
        for mine, theirs in zip(wanted, got, strict=False):
            assert mine.length == theirs.length > 0
            assert mine.episode_return == pytest.approx(theirs.episode_return, rel=1e-5)


def _summed_episodes(rollout: Rollout, env: int) -> list[Episode]:
    episodes, episode_return, length = [], 0.0, 0
    for row in rollout.rows[1:]:
        if row.is_first[env]:
            episodes.append(Episode(env, episode_return, length))
            episode_return, length = 0.0, 0
        else:
            episode_return += float(row.rewards[env])
            length += 1
    return episodes


def check_same_seed_gives_the_same_rows(config: EnvConfig) -> None:
    """Two groups with the same seed and actions emit the same bytes."""
    for mine, other in zip(recorded(config).rows, record(config).rows, strict=True):
        for a, b in zip(mine.observations, other.observations, strict=True):
            np.testing.assert_array_equal(a, b)
        for name in ("rewards", "is_first", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(other, name))
        assert mine.episodes == other.episodes


def check_reset_starts_fresh_episodes(config: EnvConfig) -> None:
    """A reset amid episodes emits first rows without rewards, ends or statistics."""
    row = recorded(config).second_reset
    assert row.is_first.all() and not row.rewards.any()
    assert not row.terminated.any() and not row.truncated.any() and not row.episodes


CHECKS = (
    check_observations_match_the_spec,
    check_rows_have_their_types,
    check_episodes_begin_where_the_last_one_ended,
    check_first_rows_have_no_reward,
    check_episode_statistics_are_sums_of_rewards,
    check_same_seed_gives_the_same_rows,
    check_reset_starts_fresh_episodes,
)
