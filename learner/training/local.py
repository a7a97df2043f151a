"""Training on threads of this process: from unrolls to versions of the weights.

Joins experience -> trainer -> weights, runs their threads, saves and restores their state.
On a GPU it runs in the learner process; on a CPU in a process of its own (`training/process/`),
so that it does not share an interpreter with acting.
"""

import logging
import time
from typing import Any

import torch
from torch import nn

from learner.agents.base import Agent
from learner.agents.steps import example_step
from learner.checkpoint import (
    Checkpoint,
    best_score,
    save_best_checkpoint,
    save_checkpoint,
)
from learner.checkpoints.best import BestScore, Score
from learner.concurrency.threads import start_thread
from learner.device.setup import num_train_threads
from learner.device.streams import make_streams
from learner.experience.base import Experience, ExperienceContext
from learner.networks.reading import advice_on_misfit
from learner.networks.torsos import lay_out
from learner.records import Completed
from learner.reporting.metrics import Metrics
from learner.training.base import TrainingSetup
from learner.training.finite_guard import FiniteGuard
from learner.training.loop import ZERO_LAG_CHECK_EVERY, run_training
from learner.training.trainer import Trainer
from learner.training.zero_lag_check import ZeroLagCheck
from learner.weights import PublishedWeights
from seed.errors import CheckpointError, expected
from seed.specs import EnvSpec

_LOG = logging.getLogger(__name__)


class LocalTraining:
    """Runs the trainer's thread and those of the experience. See `Training`."""

    weights: PublishedWeights

    def __init__(self, setup: TrainingSetup, metrics: Metrics, device: torch.device) -> None:
        """Builds nothing yet: the environment is not known.

        Args:
          setup: config, progress, ranks, directory and hooks.
          metrics: receives what the trainer measures.
          device: to train on.
        """
        self._config, self._progress, self._ranks, self._run_dir, self._hooks = setup
        self._metrics = metrics
        self._device = device
        self._save_due_at = time.monotonic() + self._config.learner.checkpoint_every_s
        self._best = BestScore(best_score(self._run_dir.checkpoints))
        self._trainer: Trainer | None = None

    def build(self, spec: EnvSpec, agent: Agent, checkpoint: Checkpoint | None) -> None:
        config = self._config
        self._agent = agent
        torch.manual_seed(config.rng_seed)
        trainer = self._make_trainer()
        self._experience = self._make_experience(spec)
        if checkpoint is not None:
            self._restore(trainer, checkpoint, spec)
        first, second, kept = (self._make_acting_copy() for _ in range(3))
        self.weights = PublishedWeights(first, second, make_streams(self._device))
        self.weights.publish(agent.acting_part(trainer.network), self._progress.learner_steps)
        self._check = ZeroLagCheck(agent, kept, ZERO_LAG_CHECK_EVERY)
        self._trainer = trainer

    def start(self) -> None:
        self._experience.start()
        self._thread = start_thread("trainer", self._run, self._hooks.on_failure)

    def put(self, completed: Completed) -> None:
        self._experience.put(completed)

    def report(self) -> dict[str, float]:
        """Returns the experience's present metrics; the trainer's are in `metrics`."""
        report = {} if self._trainer is None else self._experience.report()
        if self._best.score is not None:
            report["checkpoint/best_return"] = self._best.score.value
        return report

    def offer(self, score: Score) -> None:
        self._best.offer(score)

    def stop(self) -> None:
        self._experience.close()
        # Before all ranks have joined, the thread may wait for them for days.
        if self._ranks.joined:
            self._thread.join()

    def save(self) -> None:
        path = save_checkpoint(
            self._run_dir.checkpoints,
            self._progress.learner_steps,
            self._built.network.state_dict(),
            self._state(),
            keep=self._config.learner.keep_checkpoints,
            replay=self._experience.checkpoint(),
        )
        _LOG.info("saved %s", path)
        self._save_if_best()

    def close(self) -> None:
        if self._trainer is not None:
            self._trainer.close()
        self._ranks.leave()

    @property
    def _built(self) -> Trainer:
        assert self._trainer is not None, "built before anything else is asked for"
        return self._trainer

    def _make_network(self, *, channels_last: bool) -> nn.Module:
        network = self._agent.build_network().to(self._device)
        return lay_out(network, channels_last=channels_last)

    def _make_acting_copy(self) -> nn.Module:
        layout = self._config.learner.channels_last
        return self._agent.acting_part(self._make_network(channels_last=layout == "on"))

    def _make_trainer(self) -> Trainer:
        learner = self._config.learner
        return Trainer(
            self._agent,
            self._make_network(channels_last=learner.channels_last != "off"),
            self._config.optimizer,
            self._metrics,
            num_train_threads(self._device, learner.train_threads),
            self._ranks,
            self._make_guard(),
            compile_torsos=learner.compile,
        )

    def _make_guard(self) -> FiniteGuard:
        directory = self._run_dir.non_finite
        if self._ranks.size > 1:
            directory /= f"rank-{self._ranks.rank}"  # each has its own share of a batch
        limit = self._config.optimizer.max_non_finite_updates
        return FiniteGuard(directory, self._metrics, max_in_a_row=limit)

    def _make_experience(self, spec: EnvSpec) -> Experience:
        return self._agent.make_experience(
            ExperienceContext(
                example=example_step(spec, self._agent),
                num_slots=self._config.actor.num_envs,
                device=self._device,
                rng_seed=self._config.rng_seed,
                on_failure=self._hooks.on_failure,
            )
        )

    def _restore(self, trainer: Trainer, checkpoint: Checkpoint, spec: EnvSpec) -> None:
        try:
            trainer.load(checkpoint.weights, checkpoint.state)
        except (RuntimeError, ValueError) as error:
            wanted = "the network that these flags describe"
            refusal = expected(str(checkpoint.path), wanted, error)
            advice = advice_on_misfit(spec, self._config.network)
            raise CheckpointError(refusal + advice) from error
        self._experience.restore(checkpoint.path)
        torch.set_rng_state(checkpoint.state["rng"]["torch"])

    def _state(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps besides the weights and the replay."""
        acting = self._hooks.acting_state()
        state = self._built.state_dict() | acting
        return state | {"rng": acting["rng"] | {"torch": torch.get_rng_state()}}

    def _save_if_due(self) -> None:
        if not self._ranks.is_first:
            return
        self._save_if_best()
        if time.monotonic() < self._save_due_at:
            return
        try:
            self.save()
        except CheckpointError as error:
            # A full disk may be emptied; the run is worth more than this checkpoint.
            _LOG.error("no checkpoint this time: %s", error)
        self._save_due_at = time.monotonic() + self._config.learner.checkpoint_every_s

    def _save_if_best(self) -> None:
        """Saves the present weights as the best, if the newest score is the best.

        Without the replay, which may be gigabytes: the best checkpoint is there to play.
        """
        score = self._best.take_better()
        if score is None:
            return
        started_at = time.monotonic()
        try:
            save_best_checkpoint(
                self._run_dir.checkpoints,
                self._progress.learner_steps,
                self._built.network.state_dict(),
                self._state(),
                score,
            )
        except CheckpointError as error:
            _LOG.error("no best checkpoint this time: %s", error)
            self._best.rest(self._config.learner.checkpoint_every_s)
        else:
            self._best.saved(score, took_s=time.monotonic() - started_at)

    def _run(self) -> None:
        run_training(
            trainer=self._built,
            experience=self._experience,
            weights=self.weights,
            check=self._check,
            progress=self._progress,
            ranks=self._ranks,
            total_env_steps=self._config.learner.total_env_steps,
            save_if_due=self._save_if_due,
            metrics=self._metrics,
            clock=self._metrics.clock("trainer"),
        )
        self._hooks.on_finished()
