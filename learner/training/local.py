"""The side of the learner that trains: from unrolls to versions of the weights.

Joins experience -> trainer -> weights, runs their threads, saves and restores what
they hold. On a GPU it lives in the learner process; on a CPU in one of its own
(`learner/training/process/`), where it need not share an interpreter with acting.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from learner.agents.base import Agent
from learner.agents.r2d2 import R2D2Agent
from learner.agents.steps import example_step
from learner.checkpoint import Checkpoint, save_checkpoint
from learner.concurrency.threads import start_thread
from learner.config.agent_config import R2D2Config
from learner.config.run_config import RunConfig
from learner.device.setup import num_train_threads
from learner.device.streams import make_streams
from learner.experience.base import Experience
from learner.experience.fresh import FreshUnrolls
from learner.experience.replay.replayed_sequences import ReplayedSequences
from learner.networks.torsos import lay_out
from learner.records import Completed
from learner.reporting.metrics import Metrics
from learner.reporting.progress import Progress
from learner.training.finite_guard import FiniteGuard
from learner.training.loop import ZERO_LAG_CHECK_EVERY, run_training
from learner.training.ranks import Ranks
from learner.training.trainer import Trainer
from learner.training.zero_lag_check import ZeroLagCheck
from learner.weights import PublishedWeights
from seed.errors import CheckpointError, expected
from seed.specs import EnvSpec

_LOG = logging.getLogger(__name__)


class LearnerHooks(NamedTuple):
    """What training asks and tells of the learner around it."""

    acting_state: Callable[[], dict[str, Any]]
    """Returns what else a checkpoint keeps; called by the trainer thread."""
    on_finished: Callable[[], None]
    """Called when the env step budget is spent."""
    on_failure: Callable[[BaseException], None]
    """Called with what a thread raised, on that thread."""


class Training:
    """Trainer and whatever thread the experience has, from `start` to `stop`."""

    def __init__(
        self,
        *,
        spec: EnvSpec,
        agent: Agent,
        config: RunConfig,
        progress: Progress,
        ranks: Ranks,
        metrics: Metrics,
        device: torch.device,
        checkpoint_dir: Path,
        checkpoint: Checkpoint | None,
        hooks: LearnerHooks,
    ) -> None:
        """Builds everything; no thread runs yet.

        Args:
          spec: of the environment.
          agent: the algorithm.
          config: of the run; with several ranks, this one's share of it.
          progress: read for schedules and the budget; learner steps are counted there.
          ranks: the learners that train together.
          metrics: takes what the trainer measures.
          device: to train on.
          checkpoint_dir: where to save.
          checkpoint: to go on from.
          hooks: into the learner.

        Raises:
          CheckpointError: `checkpoint` holds another network.
          ConfigError: the replay would not fit into memory.
        """
        self._spec = spec
        self._agent = agent
        self._config = config
        self._progress = progress
        self._ranks = ranks
        self._metrics = metrics
        self._device = device
        self._checkpoint_dir = checkpoint_dir
        self._hooks = hooks
        self._save_due_at = time.monotonic() + config.learner.checkpoint_every_s

        torch.manual_seed(config.rng_seed)
        self._trainer = self._make_trainer()
        self._experience = self._make_experience(checkpoint)
        if checkpoint is not None:
            self._restore(checkpoint)
        layout = config.learner.channels_last
        copies = [self._make_network(channels_last=layout == "on") for _ in range(3)]
        self.weights = PublishedWeights(copies[0], copies[1], make_streams(device))
        self.weights.publish(self._trainer.network, progress.learner_steps)
        self._check = ZeroLagCheck(agent, copies[2], ZERO_LAG_CHECK_EVERY)

    def start(self) -> None:
        """Starts all threads."""
        self._experience.start()
        self._thread = start_thread("trainer", self._run, self._hooks.on_failure)

    def put(self, completed: Completed) -> None:
        """Takes unrolls; may block, which pauses acting. Raises Stopped."""
        self._experience.put(completed)

    def report(self) -> dict[str, float]:
        """Returns metrics of the moment; those of the window are in `metrics`."""
        return self._experience.report()

    def stop(self) -> None:
        """Ends the threads; whoever waits in `put` is told."""
        self._experience.close()
        # For ranks that never came nobody need wait.
        if self._ranks.joined:
            self._thread.join()

    def save(self) -> None:
        """Writes a checkpoint. Raises CheckpointError."""
        acting = self._hooks.acting_state()
        state = self._trainer.state_dict() | acting
        state["rng"] = acting["rng"] | {"torch": torch.get_rng_state()}
        path = save_checkpoint(
            self._checkpoint_dir,
            self._progress.learner_steps,
            self._trainer.network.state_dict(),
            state,
            keep=self._config.learner.keep_checkpoints,
            replay=self._experience.checkpoint(),
        )
        _LOG.info("saved %s", path)

    def close(self) -> None:
        """Ends what is left after `stop`, or where nothing was started."""
        self._trainer.close()
        self._ranks.leave()

    def _make_network(self, *, channels_last: bool) -> nn.Module:
        network = self._agent.build_network().to(self._device)
        return lay_out(network, channels_last=channels_last)

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
        directory = self._checkpoint_dir.with_name("non_finite")
        if self._ranks.size > 1:
            directory /= f"rank-{self._ranks.rank}"  # each has its own share of a batch
        limit = self._config.optimizer.max_non_finite_updates
        return FiniteGuard(directory, self._metrics, max_in_a_row=limit)

    def _make_experience(self, checkpoint: Checkpoint | None) -> Experience:
        config = self._config.agent
        if not isinstance(config, R2D2Config):
            return FreshUnrolls(
                config.batch_size,
                queue_batches=config.queue_batches,
                sample_reuse=config.sample_reuse,
            )
        assert isinstance(self._agent, R2D2Agent)
        experience = ReplayedSequences(
            self._agent,
            config,
            example=example_step(self._spec, self._agent, self._agent.build_network()),
            num_slots=self._config.actor.num_envs,
            device=self._device,
            rng_seed=self._config.rng_seed,
            on_failure=self._hooks.on_failure,
        )
        if checkpoint is not None:
            experience.restore(checkpoint.path)
        return experience

    def _restore(self, checkpoint: Checkpoint) -> None:
        try:
            self._trainer.load(checkpoint.weights, checkpoint.state)
        except (RuntimeError, ValueError) as error:
            raise CheckpointError(
                expected(str(checkpoint.path), "the network that these flags describe", error)
            ) from error
        torch.set_rng_state(checkpoint.state["rng"]["torch"])

    def _save_if_due(self) -> None:
        if not self._ranks.is_first or time.monotonic() < self._save_due_at:
            return
        try:
            self.save()
        except CheckpointError as error:
            # A full disk may be emptied; the run is worth more than this checkpoint.
            _LOG.error("no checkpoint this time: %s", error)
        self._save_due_at = time.monotonic() + self._config.learner.checkpoint_every_s

    def _run(self) -> None:
        run_training(
            trainer=self._trainer,
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
