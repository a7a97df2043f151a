"""Training on threads of this process: before it is built, and through a checkpoint."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from learner.agents.registry import make_agent
from learner.checkpoint import Checkpoint, best_score, load_checkpoint
from learner.checkpoints.best import TRAINING_SCORE, Score
from learner.config.agent_config import VTraceConfig
from learner.config.run_config import LearnerConfig, NetworkConfig, RunConfig
from learner.config.run_dir import RunDir
from learner.reporting.metrics import Metrics
from learner.reporting.progress import Progress
from learner.training.base import LearnerHooks, TrainingSetup
from learner.training.local import LocalTraining
from learner.training.ranks import Ranks
from seed.errors import CheckpointError
from tests.learner.builders import env_spec

CONFIG = RunConfig(
    agent=VTraceConfig(unroll_length=2, batch_size=2),
    network=NetworkConfig(hidden_sizes=(8,)),
    learner=LearnerConfig(train_threads=1),
)
SPEC = env_spec()
STEP = 7


def fail(error: BaseException) -> None:
    """No thread is expected to raise."""
    raise AssertionError from error


@pytest.fixture(autouse=True)
def own_random_numbers() -> Iterator[None]:
    """Building seeds torch's generator; the tests after this one keep theirs."""
    with torch.random.fork_rng(devices=[]):
        yield


def make_training(config: RunConfig, directory: Path) -> LocalTraining:
    """Returns training that has not been built."""
    progress = Progress()
    progress.learner_steps = STEP
    hooks = LearnerHooks(
        acting_state=lambda: {"env_steps": 40, "rng": {"acting": 1}},
        on_finished=lambda: None,
        on_failure=fail,
    )
    setup = TrainingSetup(config, progress, Ranks(), RunDir(directory), hooks)
    return LocalTraining(setup, Metrics(), torch.device("cpu"))


def build(training: LocalTraining, config: RunConfig, checkpoint: Checkpoint | None) -> None:
    """Builds training for `SPEC`."""
    training.build(SPEC, make_agent(SPEC, config), checkpoint)


def saved(directory: Path) -> Checkpoint:
    """Returns the checkpoint of training that has just been built."""
    training = make_training(CONFIG, directory)
    build(training, CONFIG, None)
    training.save()
    training.close()
    return load_checkpoint(directory / "checkpoints")


def test_training_that_is_not_built_reports_nothing_and_can_be_closed(tmp_path: Path) -> None:
    """A run without an actor ends before anything is built."""
    training = make_training(CONFIG, tmp_path)
    assert training.report() == {}
    build(training, CONFIG, None)
    assert training.report() == {"queue/unrolls": 0}
    training.close()
    make_training(CONFIG, tmp_path).close()


def restored(directory: Path, checkpoint: Checkpoint, rng_seed: int) -> LocalTraining:
    """Returns training of another seed that goes on from a checkpoint."""
    config = dataclasses.replace(CONFIG, rng_seed=rng_seed)
    training = make_training(config, directory)
    build(training, config, checkpoint)
    return training


def test_restored_weights_act_under_the_version_that_was_saved(tmp_path: Path) -> None:
    """The checkpoint also holds what acting wants to keep."""
    checkpoint = saved(tmp_path)
    assert checkpoint.state["env_steps"] == 40
    assert checkpoint.state["rng"]["acting"] == 1
    training = restored(tmp_path, checkpoint, rng_seed=5)
    network, version = training.weights.acquire()
    assert version == checkpoint.learner_step == STEP
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, checkpoint.weights[name]), name
    training.close()


def test_random_numbers_go_on_from_the_checkpoint_and_not_from_the_seed(tmp_path: Path) -> None:
    """Resumed runs draw the same numbers, although their configs have different seeds."""
    checkpoint, drawn = saved(tmp_path), []
    for rng_seed in (5, 6):
        restored(tmp_path, checkpoint, rng_seed).close()
        drawn.append(torch.rand(3))
    assert torch.equal(drawn[0], drawn[1])


def test_checkpoint_of_another_network_is_refused(tmp_path: Path) -> None:
    """The error names the checkpoint, and says that the flags describe another network."""
    checkpoint = saved(tmp_path)
    other = dataclasses.replace(CONFIG, network=NetworkConfig(hidden_sizes=(9,)))
    training = make_training(other, tmp_path)
    with pytest.raises(CheckpointError, match="expected the network that these flags describe"):
        build(training, other, checkpoint)


def scored(value: float) -> Score:
    """Returns a score of training games."""
    return Score(TRAINING_SCORE, value, 100)


def test_best_weights_are_saved_with_their_score_and_a_resumed_run_knows_it(
    tmp_path: Path,
) -> None:
    """The weights are those of the moment; a lower score later changes nothing."""
    training = make_training(CONFIG, tmp_path)
    build(training, CONFIG, None)
    assert "checkpoint/best_return" not in training.report()
    training.offer(scored(3.0))
    training._save_if_due()
    assert training.report()["checkpoint/best_return"] == 3.0
    best = load_checkpoint(tmp_path / "checkpoints" / "best")
    for name, tensor in training._built.network.state_dict().items():
        assert torch.equal(tensor, best.weights[name]), name
    assert not (tmp_path / "checkpoints" / str(STEP)).exists(), "the next usual save is not due"
    training.close()

    resumed = restored(tmp_path, best, rng_seed=5)
    resumed.offer(scored(2.0))
    resumed.save()
    assert best_score(tmp_path / "checkpoints") == scored(3.0)
    resumed.offer(scored(4.0))
    resumed.save()
    assert best_score(tmp_path / "checkpoints") == scored(4.0)
    resumed.close()


def test_best_checkpoint_that_cannot_be_written_does_not_end_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The error is logged once, and the next one waits as long as usual checkpoints do."""
    (tmp_path / "checkpoints").write_text("a file where the directory must be")
    training = make_training(CONFIG, tmp_path)
    build(training, CONFIG, None)
    for value in (1.0, 2.0):
        training.offer(scored(value))
        training._save_if_due()
    training.close()
    assert sum("no best checkpoint this time" in line for line in caplog.messages) == 1
