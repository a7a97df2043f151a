"""Totals of a run: each thread's counts add up, and are reported, saved and restored."""

from collections.abc import Callable
from pathlib import Path

import pytest

from learner.checkpoint import load_checkpoint, save_checkpoint
from learner.reporting.counters import RETURN_WINDOW, Counters
from learner.reporting.merging import weight_of
from seed.wire import Episode
from tests.learner.builders import TIMEOUT_S, in_thread


def episode(episode_return: float, length: int = 10) -> Episode:
    """Returns a game of environment 0."""
    return Episode(env=0, episode_return=episode_return, length=length)


def test_totals_add_up() -> None:
    """They count env steps, learner steps and games since the start."""
    counters = Counters()
    counters.add_env_steps(5)
    counters.add_env_steps(7)
    counters.progress.learner_steps += 3
    counters.add_episode(episode(1.0), is_eval=False)
    report = counters.report()
    assert (report["env_steps"], report["learner_steps"], report["episodes"]) == (12, 3, 1)
    assert (counters.env_steps, counters.learner_steps) == (12, 3)


def test_means_cover_the_games_since_the_last_report() -> None:
    """Each game is in one report only."""
    counters = Counters()
    counters.add_episode(episode(1.0, 10), is_eval=False)
    counters.add_episode(episode(4.0, 20), is_eval=False)
    report = counters.report()
    assert (report["episode/return_mean"], report["episode/length_mean"]) == (2.5, 15)
    counters.add_episode(episode(-3.0, 7), is_eval=False)
    report = counters.report()
    assert (report["episode/return_mean"], report["episode/length_mean"]) == (-3, 7)
    assert report["episodes"] == 3


def test_returns_have_a_spread() -> None:
    """Smallest, largest and standard deviation are of the games of the report alone."""
    counters = Counters()
    for episode_return in (1.0, 4.0, 7.0):
        counters.add_episode(episode(episode_return), is_eval=False)
    counters.add_episode(episode(-2.0), is_eval=True)
    report = counters.report()
    assert (report["episode/return_min"], report["episode/return_max"]) == (1, 7)
    assert report["episode/return_std"] == pytest.approx(6**0.5)
    assert weight_of(report["episode/return_std"]) == 3
    names = ("eval/return_min", "eval/return_max", "eval/return_std")
    assert [report[name] for name in names] == [-2, -2, 0]
    assert not {name for name in counters.report() if name.endswith(("_min", "_max", "_std"))}


def test_means_weigh_the_games_that_they_are_taken_over() -> None:
    """The means of several learners can then be merged."""
    counters = Counters()
    for number in range(RETURN_WINDOW + 5):
        counters.add_episode(episode(number), is_eval=False)
    counters.report()
    counters.add_episode(episode(0.0), is_eval=False)
    counters.add_episode(episode(0.0), is_eval=True)
    counters.add_episode(episode(0.0), is_eval=True)
    report = counters.report()
    weights = {name: weight_of(value) for name, value in report.items() if "mean" in name}
    assert weights == {
        "episode/return_mean": 1,
        "episode/length_mean": 1,
        "eval/return_mean": 2,
        "eval/length_mean": 2,
        "episode/return_mean_100": RETURN_WINDOW,
    }


def test_mean_over_no_game_is_absent() -> None:
    """The mean is neither NaN nor 0, which could be a score."""
    counters = Counters()
    assert set(counters.report()) == {"env_steps", "learner_steps", "episodes"}
    counters.add_episode(episode(2.0), is_eval=False)
    counters.report()
    report = counters.report()
    assert "episode/return_mean" not in report
    assert "episode/length_mean" not in report
    assert report["episode/return_mean_100"] == 2


def test_window_mean_is_over_the_last_hundred_games() -> None:
    """Reports in between do not change the window."""
    counters = Counters()
    for number in range(RETURN_WINDOW + 50):
        counters.add_episode(episode(number), is_eval=False)
        if number % 7 == 0:
            counters.report()
    assert counters.report()["episode/return_mean_100"] == sum(range(50, 150)) / 100


def test_greedy_games_are_kept_apart() -> None:
    """Greedy games would raise the score of training."""
    counters = Counters()
    counters.add_episode(episode(100.0, 3), is_eval=True)
    report = counters.report()
    assert report["episodes"] == 0
    assert (report["eval/return_mean"], report["eval/length_mean"]) == (100, 3)
    assert not [name for name in report if name.startswith("episode/")]
    assert "eval/return_mean" not in counters.report()


def test_restored_counters_go_on_where_they_were(tmp_path: Path) -> None:
    """The counters pass through a real checkpoint, which accepts plain values only."""
    counters = Counters()
    counters.add_env_steps(40)
    counters.progress.learner_steps += 1
    for number in range(RETURN_WINDOW + 5):
        counters.add_episode(episode(number), is_eval=False)
    save_checkpoint(tmp_path, 1, {}, counters.state_dict(), keep=1)
    restored = Counters()
    restored.load_state_dict(load_checkpoint(tmp_path).state)
    assert restored.state_dict() == counters.state_dict()
    for each in (counters, restored):
        each.add_env_steps(1)
        each.progress.learner_steps += 1
        each.add_episode(episode(1000.0), is_eval=False)
    counters.report()
    restored.report()
    assert restored.report() == counters.report()


def test_actor_seeds_differ_also_after_a_restart() -> None:
    """Two actors with one seed would play the same games."""
    counters = Counters()
    seeds = [counters.next_actor_seed(1) for _ in range(200)]
    restored = Counters()
    restored.load_state_dict(counters.state_dict())
    seeds += [restored.next_actor_seed(1) for _ in range(200)]
    assert len(set(seeds)) == 400
    assert all(0 <= seed < 2**32 for seed in seeds)


def test_actor_seeds_follow_from_the_run_seed() -> None:
    """A run can be repeated, and another seed gives another run."""
    first, again, other = ([Counters().next_actor_seed(s)] for s in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.mark.parametrize(
    ("count", "total"),
    [
        (lambda counters: counters.next_actor_seed(1), "actor_seeds"),
        (lambda counters: counters.add_episode(episode(0.0), is_eval=False), "episodes"),
    ],
    ids=["actor_seeds", "episodes"],
)
def test_no_count_is_lost_between_threads(count: Callable[[Counters], None], total: str) -> None:
    """Several threads of the server count at the same time, while reports are made."""
    counters = Counters()

    def count_many() -> None:
        for _ in range(500):
            count(counters)

    counting = [in_thread(count_many) for _ in range(4)]
    while not all(each.done() for each in counting):
        counters.report()
    for each in counting:
        each.result(TIMEOUT_S)
    assert counters.state_dict()[total] == 2000
