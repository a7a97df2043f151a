"""The learner's parts, how they are joined, and the order in which they stop.

    batcher -> inference -> experience -> trainer -> weights -> inference
    `-- Acting, a thread -'`--- Training, a thread or a process ---'

Other threads: the server's event loop, or those that deal with ingress processes, and the
caller's, which reports. Parts that depend on the environment are built when the first
actor tells its spec, on a worker thread of the server.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from learner.acting.batcher import Batcher
from learner.acting.inference_thread import Acting
from learner.agents.base import Agent
from learner.agents.registry import make_agent
from learner.checkpoint import Checkpoint
from learner.config.run_config import RunConfig
from learner.device.setup import trains_in_process
from learner.reporting.counters import Counters
from learner.reporting.metrics import Metrics
from learner.serving.factory import make_server
from learner.serving.ingress.handle import IngressProcesses
from learner.serving.limits import Limits
from learner.serving.reception import Reception
from learner.serving.server import ServerThread, check_same_environment
from learner.serving.session import Patience
from learner.serving.task import make_task
from learner.training.local import LearnerHooks, Training
from learner.training.process.handle import TrainerProcess
from learner.training.ranks import Ranks, share_of
from seed.pb import inference_pb2 as pb
from seed.security import Security
from seed.serialization import structure, unstructure
from seed.specs import EnvSpec


class Learner:
    """Serves actors and trains, from `start` to `close`."""

    def __init__(
        self,
        config: RunConfig,
        *,
        run_dir: Path,
        device: torch.device,
        checkpoint: Checkpoint | None = None,
        ranks: Ranks | None = None,
        on_built: Callable[[], None] = lambda: None,
    ) -> None:
        """`ranks` train together, each on its share of `config`. `on_built` is called once
        nothing stands in the way of training: there is memory, and the checkpoint fits.

        Raises:
          ConfigError: a batch that they cannot share.
        """
        self._ranks = ranks or Ranks()
        self.config = share_of(config, self._ranks)
        self.counters = Counters(self._ranks.rank)
        self.metrics = Metrics()
        self.finished = threading.Event()
        """Set when the budget is spent, something failed, or `stop` was asked for."""
        self.failure: BaseException | None = None
        self.run_dir = run_dir
        self._device = device
        self._checkpoint = checkpoint
        self._checkpoint_dir = run_dir / "checkpoints"
        self._on_built = on_built
        self._hooks = LearnerHooks(self._acting_state, self.finished.set, self.fail)
        self._admission = threading.Lock()
        self._batcher = Batcher(config.inference)
        self._patience = Patience(step_s=config.inference.actor_timeout_s)
        self._server: ServerThread | IngressProcesses | None = None
        self._acting: Acting | None = None
        self._training: Training | TrainerProcess | None = None
        self._started_at = time.monotonic()
        self._earlier_wall_s = 0.0
        # When and where the last report was made: speed is taken between reports.
        self._reported_s = 0.0
        self._reported_steps = 0.0
        self._spec: EnvSpec | None = None
        if checkpoint is not None:
            self._spec = structure(checkpoint.state["spec"], EnvSpec)
            self.counters.load_state_dict(checkpoint.state["counters"])
            self._earlier_wall_s = checkpoint.state["wall_s"]
            self._reported_s = self._earlier_wall_s
            self._reported_steps = self.counters.env_steps

    @property
    def wall_s(self) -> float:
        """Seconds the run has been going, restarts included."""
        return self._earlier_wall_s + time.monotonic() - self._started_at

    def start(self, addresses: tuple[str, ...], security: Security) -> list[str]:
        """Begins to serve; returns the addresses bound. Raises ConfigError."""
        if trains_in_process(self._device, self.config.learner.train_in):
            # Now, as it takes seconds to start.
            self._training = TrainerProcess(
                self.config,
                progress=self.counters.progress,
                ranks=self._ranks,
                checkpoint_dir=self._checkpoint_dir,
                hooks=self._hooks,
            )
        reception = Reception(
            make_task=self._make_task,
            admit=self._admit,
            batcher=self._batcher,
            metrics=self.metrics,
            limits=Limits(max_envs=self.config.inference.max_envs),
        )
        self._server = make_server(
            reception,
            addresses,
            self.fail,
            security,
            self._patience,
            ingress_processes=self.config.learner.ingress_processes,
        )
        return self._server.start()

    def stop(self) -> None:
        """Asks the run to end; `close` then ends it."""
        self.finished.set()

    def fail(self, error: BaseException) -> None:
        """Ends the run because a thread raised `error`."""
        if self.failure is None:
            self.failure = error
        self.finished.set()

    def close(self) -> None:
        """Stops the parts in reverse order, then saves what was learned."""
        if self._server is not None:
            self._server.close()
        self._batcher.close()
        if self._training is None:
            return
        try:
            if self._acting is not None:
                self._training.stop()
                self._acting.join()
                if self.failure is None and self._ranks.is_first:
                    self._training.save()
        finally:
            self._training.close()

    def report(self) -> dict[str, float]:
        """Returns the metrics since the last report."""
        report = self.metrics.drain() | self.counters.report()
        if self._training is not None and self._acting is not None:
            report |= self._training.report()
        report["env_frames"] = self.counters.env_steps * self.config.env.frames_per_step
        report["wall_s"] = self.wall_s
        steps, seconds = report["env_steps"], report["wall_s"]
        if seconds > self._reported_s:
            report["env_steps_per_s"] = (steps - self._reported_steps) / (
                seconds - self._reported_s
            )
        self._reported_steps, self._reported_s = steps, seconds
        return report

    def _make_task(self) -> pb.Task:
        seed = self.counters.next_actor_seed(self.config.rng_seed)
        return make_task(self.config.env, self.config.actor, base_seed=seed)

    def _admit(self, spec: EnvSpec) -> str:
        """Builds everything for the first actor's spec; checks later ones against it."""
        # Held on the worker thread: the stream that waits for it may be gone by the end.
        with self._admission:
            if self._spec is not None:
                check_same_environment(self._spec, spec)
            if self._acting is None:
                # The actor's fault if there is none: it is refused, others may come.
                agent = make_agent(spec, self.config)
                try:
                    self._build(spec, agent)
                except BaseException as error:
                    self.fail(error)
                    raise
        return self.run_dir.name

    def _build(self, spec: EnvSpec, agent: Agent) -> None:
        """Builds and starts both sides for the first actor's environment."""
        self._spec = spec
        if isinstance(self._training, TrainerProcess):
            self._training.build(spec, self._checkpoint.path if self._checkpoint else None)
        else:
            self._training = Training(
                spec=spec,
                agent=agent,
                config=self.config,
                progress=self.counters.progress,
                ranks=self._ranks,
                metrics=self.metrics,
                device=self._device,
                checkpoint_dir=self._checkpoint_dir,
                checkpoint=self._checkpoint,
                hooks=self._hooks,
            )
        acting = Acting(
            spec=spec,
            agent=agent,
            config=self.config,
            training=self._training,
            batcher=self._batcher,
            counters=self.counters,
            place=self._ranks.place,
            metrics=self.metrics,
            device=self._device,
            checkpoint=self._checkpoint,
            on_failure=self.fail,
        )
        self._on_built()
        self._training.start()
        acting.start()
        self._acting = acting

    def _acting_state(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps beside what training knows."""
        assert self._acting is not None, "nothing is trained before anyone acts"
        counters = self.counters.state_dict()
        return self._acting.state_dict() | {
            "counters": counters,
            # Not read anew: acting goes on meanwhile.
            "env_steps": counters["env_steps"],
            "wall_s": self.wall_s,
            "spec": unstructure(self._spec),
        }
