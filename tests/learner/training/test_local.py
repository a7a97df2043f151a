"""Training on threads of this process: before it is built, and through a checkpoint."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from learner.agents.registry import make_agent
from learner.checkpoint import Checkpoint, load_checkpoint
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
