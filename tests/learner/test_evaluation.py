"""Which games of an evaluation count, and which runs can be evaluated."""

import random
from pathlib import Path

import pytest
import torch

from learner.checkpoint import save_checkpoint
from learner.config.config_file import dump_config
from learner.config.run_config import RunConfig
from learner.evaluation import EpisodeQuota
from learner.loaded_run import load_run
from seed.errors import CheckpointError, ConfigError
from seed.wire import Episode


def play(quota: EpisodeQuota, *envs: int) -> None:
    """Ends one game in each of `envs`, in that order; returns tell them apart."""
    for env in envs:
        game = Episode(env=env, episode_return=float(len(quota.episodes)), length=1)
        quota.add_episode(game, is_eval=True)


def test_games_are_split_evenly_over_environments() -> None:
    """Seven over three: 3, 2 and 2."""
    quota = EpisodeQuota(7, 3)
    play(quota, 0, 1, 2, 0, 1, 2)
    assert not quota.complete.is_set()
    play(quota, 0)
    assert quota.complete.is_set()
    assert [game.env for game in quota.episodes] == [0, 1, 2, 0, 1, 2, 0]


def test_games_beyond_the_share_of_an_environment_do_not_count() -> None:
    """One that ends its games quickly must not crowd out the long ones."""
    quota = EpisodeQuota(4, 2)
    play(quota, 0, 0, 0, 0, 0, 1)
    assert not quota.complete.is_set()
    assert [game.env for game in quota.episodes] == [0, 0, 1]
    play(quota, 0, 1)
    assert quota.complete.is_set()
    assert [game.env for game in quota.episodes] == [0, 0, 1, 1]


def test_games_after_the_last_are_ignored() -> None:
    """The actor goes on until it is told to stop."""
    quota = EpisodeQuota(1, 1)
    play(quota, 0, 0, 0)
    assert len(quota.episodes) == 1
    assert quota.complete.is_set()


@pytest.mark.parametrize(("num_episodes", "num_envs"), [(1, 1), (5, 5), (20, 8), (3, 1)])
def test_quota_is_met_exactly_whatever_the_order(num_episodes: int, num_envs: int) -> None:
    """Games ending at random."""
    rng, quota = random.Random(0), EpisodeQuota(num_episodes, num_envs)
    while not quota.complete.is_set():
        play(quota, rng.randrange(num_envs))
    assert len(quota.episodes) == num_episodes
    counts = [sum(game.env == env for game in quota.episodes) for env in range(num_envs)]
    assert max(counts) - min(counts) <= 1


def test_env_steps_are_of_no_account() -> None:
    """Only whole games count."""
    quota = EpisodeQuota(1, 1)
    quota.add_env_steps(1_000_000)
    assert not quota.complete.is_set()


def make_run(path: Path, *steps: int) -> Path:
    """Makes a run with a checkpoint of each of `steps`."""
    path.mkdir()
    dump_config(RunConfig(rng_seed=5), path / "config.yaml", name="cartpole-vtrace")
    for step in steps:
        weights = {"weight": torch.full((2,), float(step))}
        save_checkpoint(path / "checkpoints", step, weights, {"env_steps": step}, keep=5)
    return path


def test_run_directory_gives_its_newest_checkpoint(tmp_path: Path) -> None:
    """And the config that the run was made with."""
    run = load_run(make_run(tmp_path / "run", 10, 20))
    assert run.config == RunConfig(rng_seed=5)
    assert run.checkpoint.learner_step == 20
    assert run.checkpoint.weights["weight"].tolist() == [20, 20]


def test_one_checkpoint_can_be_chosen(tmp_path: Path) -> None:
    """By its own directory; the config is still the run's."""
    run = load_run(make_run(tmp_path / "run", 10, 20) / "checkpoints" / "10")
    assert run.config == RunConfig(rng_seed=5)
    assert run.checkpoint.learner_step == 10


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_directory_without_a_run_is_refused(tmp_path: Path, name: str) -> None:
    """Naming the argument and what was given."""
    (tmp_path / "empty").mkdir()
    path = tmp_path / name
    with pytest.raises(ConfigError) as caught:
        load_run(path)
    assert str(caught.value) == f"RUN: expected a run directory with a config.yaml, got {path}"


def test_run_that_has_saved_nothing_is_refused(tmp_path: Path) -> None:
    """There are no weights to play with."""
    with pytest.raises(CheckpointError, match="checkpoints"):
        load_run(make_run(tmp_path / "run"))


def test_checkpoint_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    """Rather than the newest taken in its place."""
    run_dir = make_run(tmp_path / "run", 10)
    with pytest.raises(CheckpointError, match="99"):
        load_run(run_dir / "checkpoints" / "99")


def test_run_with_a_broken_config_is_refused(tmp_path: Path) -> None:
    """Naming the field."""
    run_dir = make_run(tmp_path / "run", 10)
    (run_dir / "config.yaml").write_text("network: {torso: vgg}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="network.torso: expected one of"):
        load_run(run_dir)
