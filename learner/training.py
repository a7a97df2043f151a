"""The parts behind the server, built once the environment's spec is known.

Joins batcher -> inference -> experience -> trainer -> weights -> inference, runs
the threads among them, and saves and restores what they hold.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path

import torch

from learner.agents.base import Agent
from learner.agents.r2d2 import R2D2Agent
from learner.batcher import Batcher
from learner.checkpoint import Checkpoint, load_replay, save_checkpoint
from learner.counters import Counters
from learner.experience import Experience
from learner.fresh_unrolls import FreshUnrolls
from learner.inference import InferenceEngine, example_step, run_inference
from learner.metrics import Metrics
from learner.replay.replayed_sequences import ReplayedSequences
from learner.setup import num_train_threads
from learner.threads import start_thread
from learner.trainer import ZERO_LAG_CHECK_EVERY, Trainer, run_training
from learner.weights import PublishedWeights
from learner.zero_lag_check import ZeroLagCheck
from seed.agent_config import R2D2Config
from seed.config import RunConfig
from seed.errors import CheckpointError, expected
from seed.priority import SHARED_CORE_NICENESS
from seed.serialization import unstructure
from seed.specs import EnvSpec

_LOG = logging.getLogger(__name__)


class Training:
    """Inference, trainer and whatever thread the experience has, from `start` to `close`."""

    def __init__(
        self,
        *,
        spec: EnvSpec,
        agent: Agent,
        config: RunConfig,
        batcher: Batcher,
        counters: Counters,
        metrics: Metrics,
        device: torch.device,
        checkpoint_dir: Path,
        checkpoint: Checkpoint | None,
        wall_s: Callable[[], float],
        on_finished: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`on_finished` is called when the env step budget is spent.

        Raises:
          CheckpointError: `checkpoint` holds another network or replay.
          ConfigError: the replay would not fit into memory.
        """
        self.spec = spec
        self._agent = agent
        self._config = config
        self._batcher = batcher
        self._counters = counters
        self._metrics = metrics
        self._device = device
        self._checkpoint_dir = checkpoint_dir
        self._wall_s = wall_s
        self._on_finished = on_finished
        self._on_failure = on_failure
        self._save_due_at = time.monotonic() + config.learner.checkpoint_every_s
        self._generator = torch.Generator(device).manual_seed(config.rng_seed)

        torch.manual_seed(config.rng_seed)
        network = agent.build_network().to(device)
        num_threads = num_train_threads(device, config.learner.train_threads)
        self._trainer = Trainer(agent, network, config.optimizer, metrics, num_threads)
        self.experience = self._make_experience(checkpoint)
        if checkpoint is not None:
            self._restore(checkpoint)
        copies = [agent.build_network().to(device) for _ in range(3)]
        self._weights = PublishedWeights(copies[0], copies[1])
        self._weights.publish(network, counters.learner_steps)
        self._check = ZeroLagCheck(agent, copies[2], ZERO_LAG_CHECK_EVERY)
        self._engine = InferenceEngine(
            spec=spec,
            agent=agent,
            weights=self._weights,
            emit=self.experience.put,
            counters=counters,
            metrics=metrics,
            device=device,
            generator=self._generator,
        )

    def start(self) -> None:
        """Starts all threads."""
        self.experience.start()
        self._threads = [
            # On cores that they share the trainer goes first, as it is what the others wait
            # for: acting catches up while it waits for unrolls.
            start_thread(
                "inference", self._run_inference, self._on_failure, niceness=SHARED_CORE_NICENESS
            ),
            start_thread("trainer", self._run_trainer, self._on_failure),
        ]

    def close(self) -> None:
        """Waits for all threads; the batcher must be closed already."""
        self.experience.close()
        for thread in self._threads:
            thread.join()

    def save(self) -> None:
        """Writes a checkpoint. Raises CheckpointError."""
        state = self._trainer.state_dict() | {
            "counters": self._counters.state_dict(),
            "env_steps": self._counters.env_steps,
            "wall_s": self._wall_s(),
            "spec": unstructure(self.spec),
            "rng": {
                "torch": torch.get_rng_state(),
                "inference": self._generator.get_state(),
            },
        }
        path = save_checkpoint(
            self._checkpoint_dir,
            self._counters.learner_steps,
            self._trainer.network.state_dict(),
            state,
            keep=self._config.learner.keep_checkpoints,
            replay=self.experience.checkpoint(),
        )
        _LOG.info("saved %s", path)

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
            example=example_step(self.spec, self._agent, self._agent.build_network()),
            num_slots=self._config.actor.envs_per_group * self._config.actor.num_groups,
            device=self._device,
            rng_seed=self._config.rng_seed,
            on_failure=self._on_failure,
        )
        if checkpoint is not None:
            try:
                experience.restore(load_replay(checkpoint.path))
            except (KeyError, ValueError) as error:
                wanted = "the replay that these flags describe"
                raise CheckpointError(expected(str(checkpoint.path), wanted, error)) from error
        return experience

    def _restore(self, checkpoint: Checkpoint) -> None:
        try:
            self._trainer.load(checkpoint.weights, checkpoint.state)
        except (RuntimeError, ValueError) as error:
            raise CheckpointError(
                expected(str(checkpoint.path), "the network that these flags describe", error)
            ) from error
        torch.set_rng_state(checkpoint.state["rng"]["torch"])
        self._generator.set_state(checkpoint.state["rng"]["inference"])

    def _save_if_due(self) -> None:
        if time.monotonic() < self._save_due_at:
            return
        try:
            self.save()
        except CheckpointError:
            # A full disk may be emptied; the run is worth more than this checkpoint.
            _LOG.exception("no checkpoint this time")
        self._save_due_at = time.monotonic() + self._config.learner.checkpoint_every_s

    def _run_inference(self) -> None:
        run_inference(self._batcher, self._engine, self._metrics)

    def _run_trainer(self) -> None:
        run_training(
            trainer=self._trainer,
            experience=self.experience,
            weights=self._weights,
            check=self._check,
            counters=self._counters,
            total_env_steps=self._config.learner.total_env_steps,
            save_if_due=self._save_if_due,
            metrics=self._metrics,
            clock=self._metrics.clock("trainer"),
        )
        self._on_finished()
