"""Reading a run: which directories hold one, and which checkpoint is taken."""

from pathlib import Path

import pytest
import torch

from learner.checkpoint import save_best_checkpoint, save_checkpoint
from learner.checkpoints.best import Score
from learner.config.config_file import dump_config
from learner.config.run_config import RunConfig
from learner.loaded_run import load_run
from seed.errors import CheckpointError, ConfigError


def make_run(path: Path, *steps: int) -> Path:
    """Makes a run with a checkpoint of each of `steps`."""
    path.mkdir()
    dump_config(RunConfig(rng_seed=5), path / "config.yaml", name="cartpole-vtrace")
    for step in steps:
        weights = {"weight": torch.full((2,), float(step))}
        save_checkpoint(path / "checkpoints", step, weights, {"env_steps": step}, keep=5)
    return path


def test_run_directory_gives_its_newest_checkpoint(tmp_path: Path) -> None:
    """The config is the one that the run was made with."""
    run = load_run(make_run(tmp_path / "run", 10, 20))
    assert run.config == RunConfig(rng_seed=5)
    assert run.checkpoint.learner_step == 20
    assert run.checkpoint.weights["weight"].tolist() == [20, 20]


def test_one_checkpoint_can_be_chosen(tmp_path: Path) -> None:
    """The directory of a checkpoint chooses it, and the config is that of the run."""
    run = load_run(make_run(tmp_path / "run", 10, 20) / "checkpoints" / "10")
    assert run.config == RunConfig(rng_seed=5)
    assert run.checkpoint.learner_step == 10


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_directory_without_a_run_is_refused(tmp_path: Path, name: str) -> None:
    """The error names the argument and the path."""
    (tmp_path / "empty").mkdir()
    path = tmp_path / name
    with pytest.raises(ConfigError) as caught:
        load_run(path)
    assert str(caught.value) == f"RUN: expected a run directory with a config.yaml, got {path}"


def test_run_that_has_saved_nothing_is_refused(tmp_path: Path) -> None:
    """There are no weights to act with."""
    with pytest.raises(CheckpointError, match="checkpoints"):
        load_run(make_run(tmp_path / "run"))


def test_checkpoint_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    """The newest checkpoint is not taken in its place."""
    run_dir = make_run(tmp_path / "run", 10)
    with pytest.raises(CheckpointError, match="99"):
        load_run(run_dir / "checkpoints" / "99")


def test_run_with_a_broken_config_is_refused(tmp_path: Path) -> None:
    """The error names the field."""
    run_dir = make_run(tmp_path / "run", 10)
    (run_dir / "config.yaml").write_text("network: {torso: vgg}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="network.torso: expected one of"):
        load_run(run_dir)


@pytest.mark.parametrize(
    ("name", "step"), [(None, 20), ("latest", 20), ("10", 10), ("best", 15), ("15", 15)]
)
def test_checkpoint_is_chosen_by_name(tmp_path: Path, name: str | None, step: int) -> None:
    """Newest, best, or that of a learner step."""
    run_dir = make_run(tmp_path / "run", 10, 20)
    weights, score = {"weight": torch.zeros(2)}, Score("eval/return_mean", 1.0, 20)
    save_best_checkpoint(run_dir / "checkpoints", 15, weights, {}, score)
    assert load_run(run_dir, name).checkpoint.learner_step == step


@pytest.mark.parametrize("name", ["best", "11", "newest", "../10", ""])
def test_name_of_no_checkpoint_is_refused(tmp_path: Path, name: str) -> None:
    """The error tells which ones there are."""
    with pytest.raises(CheckpointError, match=f"got '{name}'; there are latest, 20, 10"):
        load_run(make_run(tmp_path / "run", 10, 20), name)


def test_checkpoint_and_a_name_are_refused_together(tmp_path: Path) -> None:
    """RUN itself is a checkpoint then; which one is meant cannot be known."""
    run_dir = make_run(tmp_path / "run", 10, 20)
    with pytest.raises(ConfigError, match="checkpoint: expected none, as RUN is a checkpoint"):
        load_run(run_dir / "checkpoints" / "10", "best")


def test_checkpoint_is_found_from_its_own_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is found by the whole path, not by the part that was typed."""
    run_dir = make_run(tmp_path / "run", 10, 20)
    monkeypatch.chdir(run_dir / "checkpoints")
    assert load_run(Path("10")).checkpoint.learner_step == 10
