"""The trainer's loop: when it ends, and what it tells of each update."""

import numpy as np
import pytest
import torch
from torch import Tensor

from learner.experience.base import Sample
from learner.experience.fresh import FreshUnrolls
from learner.records import Completed, Unrolls
from learner.reporting.progress import Progress
from learner.training.loop import run_training
from learner.training.ranks import Ranks
from learner.training.zero_lag_check import ZeroLagCheck
from learner.weights import PublishedWeights
from tests.learner.builders import TIMEOUT_S, assert_same, in_thread, numbered_unrolls
from tests.learner.training.slope_agent import Slope, SlopeAgent, make_trainer, weights_of


class RecordingUnrolls(FreshUnrolls):
    """Remembers the arguments of `trained`."""

    def __init__(self, batch_size: int, *, queue_batches: int, sample_reuse: int) -> None:
        super().__init__(batch_size, queue_batches=queue_batches, sample_reuse=sample_reuse)
        self.told: list[tuple[Sample, Tensor | None]] = []

    def trained(self, sample: Sample, priorities: Tensor | None) -> None:
        self.told.append((sample, priorities))


class TrainingRun:
    """`run_training` with all that it needs, on the calling thread or another."""

    def __init__(self, total_env_steps: int, *, sample_reuse: int = 1) -> None:
        self.trainer, self.metrics = make_trainer()
        self.agent = self.trainer.agent
        self.experience = RecordingUnrolls(2, queue_batches=4, sample_reuse=sample_reuse)
        self.weights = PublishedWeights(Slope(), Slope())
        self.progress = Progress()
        self.check = ZeroLagCheck(self.agent, Slope(), every_steps=1)
        self.num_saves = 0
        self.env_steps_per_update = 0
        self._total_env_steps = total_env_steps

    def put(self, unrolls: Unrolls) -> None:
        """Puts unrolls as inference would."""
        slots = np.arange(unrolls.num_unrolls)
        self.experience.put(Completed(unrolls, slots, np.ones(len(slots), bool)))

    def save_if_due(self) -> None:
        """Counts the calls, and adds the env steps that inference would have counted by then."""
        self.num_saves += 1
        self.progress.own_env_steps += self.env_steps_per_update

    def run(self) -> None:
        """Trains until it returns."""
        run_training(
            trainer=self.trainer,
            experience=self.experience,
            weights=self.weights,
            check=self.check,
            progress=self.progress,
            ranks=Ranks(),
            total_env_steps=self._total_env_steps,
            save_if_due=self.save_if_due,
            metrics=self.metrics,
            clock=self.metrics.clock("trainer"),
        )


def test_training_ends_when_the_env_steps_are_spent() -> None:
    """Each update takes the oldest batch, and batches beyond the budget are left."""
    run = TrainingRun(total_env_steps=100)
    run.env_steps_per_update = 40
    for number in range(4):
        run.put(numbered_unrolls([2 * number, 2 * number + 1]))
    run.run()
    assert run.progress.learner_steps == run.num_saves == 3
    assert isinstance(run.agent, SlopeAgent)
    for number, unrolls in enumerate(run.agent.trained_on):
        assert_same(unrolls, numbered_unrolls([2 * number, 2 * number + 1]))
    assert run.experience.report() == {"queue/unrolls": 2}
    assert run.agent.progress == pytest.approx([0, 0.4, 0.8])
    # The learning rate of the last update: 80 of 100 env steps were done.
    assert run.metrics.drain()["optimizer/learning_rate"] == pytest.approx(0.5 * 0.2)


def test_reused_batches_are_trained_on_beside_the_fresh_one() -> None:
    """Each batch is in `sample_reuse` updates, and the fresh one comes last."""
    run = TrainingRun(total_env_steps=3, sample_reuse=2)
    run.env_steps_per_update = 1
    for number in range(3):
        run.put(numbered_unrolls([2 * number, 2 * number + 1]))
    run.run()
    assert isinstance(run.agent, SlopeAgent)
    trained_on = [unrolls.steps.actions[0].tolist() for unrolls in run.agent.trained_on]
    assert trained_on == [[0, 1], [0, 1, 2, 3], [2, 3, 4, 5]]


def test_experience_is_told_the_priorities_of_each_batch() -> None:
    """They are those of the loss, in the batch's order; an agent without priorities gives None."""
    run = TrainingRun(total_env_steps=2)
    run.env_steps_per_update = 1
    run.put(numbered_unrolls([0, 1, 2, 3]))
    assert isinstance(run.agent, SlopeAgent)
    run.agent.prioritises = True
    run.run()
    told = [priorities.tolist() for _, priorities in run.experience.told if priorities is not None]
    assert told == [[0, 1], [2, 3]]
    batches = [sample.batch for sample, _ in run.experience.told]
    assert [batch.unrolls.steps.actions[0].tolist() for batch in batches] == told


def test_agent_is_called_after_each_update() -> None:
    """A target network must follow the new weights, and not those before."""
    run = TrainingRun(total_env_steps=2)
    run.env_steps_per_update = 1
    run.put(numbered_unrolls([0, 1, 2, 3]))
    run.run()
    assert isinstance(run.agent, SlopeAgent)
    assert [step for step, _ in run.agent.updates] == [1, 2]
    assert torch.equal(run.agent.updates[-1][1], weights_of(run.trainer.network))


def test_every_update_is_published_under_its_number() -> None:
    """Inference acts with the weights that were just trained."""
    run = TrainingRun(total_env_steps=2)
    run.env_steps_per_update = 1
    run.put(numbered_unrolls([0, 0, 0, 0]))
    run.run()
    network, version = run.weights.acquire()
    assert version == 2
    assert torch.equal(weights_of(network), weights_of(run.trainer.network))


def test_training_ends_when_the_queue_closes() -> None:
    """Ctrl-C may come while the trainer waits for unrolls."""
    run = TrainingRun(total_env_steps=100)
    run.put(numbered_unrolls([0]))
    training = in_thread(run.run)
    run.experience.close()
    training.result(TIMEOUT_S)
    assert run.progress.learner_steps == 0


def test_complete_run_trains_no_more() -> None:
    """A run that is resumed by mistake must not wait for a batch."""
    run = TrainingRun(total_env_steps=100)
    run.progress.own_env_steps = 100
    run.run()
    assert run.progress.learner_steps == 0


def test_zero_lag_deviation_is_reported() -> None:
    """It is that of the first batch, on which the initial weights acted."""
    run = TrainingRun(total_env_steps=1)
    run.env_steps_per_update = 1
    run.put(numbered_unrolls([0, 0]))
    run.run()
    report = run.metrics.drain()
    assert report["policy/max_abs_log_rho_at_zero_lag"] == pytest.approx(0.25)
