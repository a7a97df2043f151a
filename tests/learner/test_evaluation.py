"""Which games of an evaluation count."""

import random

import pytest

from learner.evaluation import EpisodeQuota
from seed.wire import Episode


def play(quota: EpisodeQuota, *envs: int) -> None:
    """Ends a game in each of `envs`, in that order; each game has another return."""
    for env in envs:
        game = Episode(env=env, episode_return=float(len(quota.episodes)), length=1)
        quota.add_episode(game, is_eval=True)


def test_games_are_split_evenly_over_environments() -> None:
    """Seven games over three environments are 3, 2 and 2."""
    quota = EpisodeQuota(7, 3)
    play(quota, 0, 1, 2, 0, 1, 2)
    assert not quota.complete.is_set()
    play(quota, 0)
    assert quota.complete.is_set()
    assert [game.env for game in quota.episodes] == [0, 1, 2, 0, 1, 2, 0]


def test_games_beyond_the_share_of_an_environment_do_not_count() -> None:
    """An environment whose games end quickly must not crowd out long games."""
    quota = EpisodeQuota(4, 2)
    play(quota, 0, 0, 0, 0, 0, 1)
    assert not quota.complete.is_set()
    assert [game.env for game in quota.episodes] == [0, 0, 1]
    play(quota, 0, 1)
    assert quota.complete.is_set()
    assert [game.env for game in quota.episodes] == [0, 0, 1, 1]


def test_games_after_the_last_are_ignored() -> None:
    """The actor goes on until it is stopped."""
    quota = EpisodeQuota(1, 1)
    play(quota, 0, 0, 0)
    assert len(quota.episodes) == 1
    assert quota.complete.is_set()


@pytest.mark.parametrize(("num_episodes", "num_envs"), [(1, 1), (5, 5), (20, 8), (3, 1)])
def test_quota_is_met_exactly_in_any_order(num_episodes: int, num_envs: int) -> None:
    """The games end in random order."""
    rng, quota = random.Random(0), EpisodeQuota(num_episodes, num_envs)
    while not quota.complete.is_set():
        play(quota, rng.randrange(num_envs))
    assert len(quota.episodes) == num_episodes
    counts = [sum(game.env == env for game in quota.episodes) for env in range(num_envs)]
    assert max(counts) - min(counts) <= 1


def test_env_steps_do_not_count() -> None:
    """Only whole games count."""
    quota = EpisodeQuota(1, 1)
    quota.add_env_steps(1_000_000)
    assert not quota.complete.is_set()
