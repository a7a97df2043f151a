"""The learner: it joins the wings, and starts and stops them in order.

    thread or process       calls                          wing
    server                  reception, batcher.submit      serving     actors in, actions out
      (or ingress processes, and the threads that answer them)
    inference               batcher.next_batch, put        acting      one forward for all
    trainer                 next_batch, publish            training    batches -> versions
      (a thread on a GPU, a process on a CPU)
    main                    report, save, close            reporting   what a run reports

Acting gives unrolls to training through `experience`. Training gives weights to acting through
`weights`. The parts that depend on the environment are built when the first actor sends its spec.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from learner.acting.batcher import Batcher
from learner.acting.inference_thread import InferenceThread
from learner.acting.observers import StepObserver
from learner.agents.registry import make_agent
from learner.checkpoint import Checkpoint
from learner.config.run_config import RunConfig
from learner.config.run_dir import RunDir
from learner.networks.reading import readings
from learner.reporting.counters import Counters
from learner.reporting.live_view import STAYS
from learner.reporting.merging import merge_windows
from learner.reporting.metrics import Metrics
from learner.reporting.reward_watch import RewardWatch
from learner.reporting.speed import Speed
from learner.service import Service, ServingConfig
from learner.serving.task import make_task
from learner.training.base import LearnerHooks, Training, TrainingSetup
from learner.training.factory import make_training
from learner.training.ranks import Ranks, share_of
from seed.pb import inference_pb2 as pb
from seed.security import Security
from seed.serialization import structure, unstructure
from seed.specs import EnvSpec

_LOG = logging.getLogger(__name__)


class Learner:
    """Serves actors and trains, from `start` to `close`."""

    def __init__(
        self,
        config: RunConfig,
        *,
        run_dir: RunDir,
        device: torch.device,
        checkpoint: Checkpoint | None = None,
        ranks: Ranks | None = None,
        observers: Sequence[StepObserver] = (),
        on_built: Callable[[], None] = lambda: None,
    ) -> None:
        """Nothing runs yet.

        Args:
          config: of the run; `ranks` that train together do a share of it each.
          run_dir: where checkpoints, and batches that are not finite, go.
          device: of the networks.
          checkpoint: the state to resume.
          ranks: the learners that train together.
          observers: see every step that this learner acts on.
          on_built: called once training is certain to start: there is enough memory, and the
            checkpoint fits.

        Raises:
          ConfigError: a batch that the ranks cannot share.
        """
        self._ranks = ranks or Ranks()
        self.config = share_of(config, self._ranks)
        self.counters = Counters(self._ranks.rank)
        self.metrics = Metrics()
        self.finished = threading.Event()
        """Set when the budget is spent, a thread has failed, or `stop` was called."""
        self.is_complete = False
        """Whether the budget of env steps is spent."""
        self.failure: BaseException | None = None
        self.run_dir = run_dir
        self._device = device
        self._checkpoint = checkpoint
        self._observers = observers
        self._on_built = on_built
        self._service: Service | None = None
        self._inference: InferenceThread | None = None
        self._training: Training | None = None
        self._started_at = time.monotonic()
        self._earlier_wall_s = 0.0
        self._speed = Speed()
        self._last_window: dict[str, float] | None = None
        self._num_envs = 0
        self._reward_watch = RewardWatch(config.agent, is_atari=config.env.is_atari)
        self._spec: EnvSpec | None = None
        if checkpoint is not None:
            self._spec = structure(checkpoint.state["spec"], EnvSpec)
            self.counters.load_state_dict(checkpoint.state["counters"])
            self._earlier_wall_s = checkpoint.state["wall_s"]
            self._speed = Speed(self.counters.env_steps, self._earlier_wall_s)

    @property
    def wall_s(self) -> float:
        """Seconds the run has been going, restarts included."""
        return self._earlier_wall_s + time.monotonic() - self._started_at

    def start(self, addresses: Sequence[str], security: Security) -> list[str]:
        """Starts serving; returns the addresses bound. Raises ConfigError."""
        # Made before the first actor connects, because a process takes seconds to start.
        self._training = make_training(
            TrainingSetup(
                self.config,
                self.counters.progress,
                self._ranks,
                self.run_dir,
                LearnerHooks(self._acting_state, self._complete, self.fail),
            ),
            self.metrics,
            self._device,
        )
        self._service = Service(
            ServingConfig.of_run(self.config, security),
            name=self.run_dir.name,
            make_task=self._make_task,
            build=self._build,
            on_failure=self.fail,
            metrics=self.metrics,
            spec=self._spec,
        )
        return self._service.start(addresses)

    def stop(self) -> None:
        """Asks the run to end; `close` then ends it."""
        self.finished.set()

    def fail(self, error: BaseException) -> None:
        """Ends the run because a thread raised `error`."""
        if self.failure is None:
            self.failure = error
        self.finished.set()

    def close(self, linger: Callable[[], None] = lambda: None) -> None:
        """Stops serving and acting, saves a checkpoint, then ends training.

        `linger` is called when the run is complete and saved, while the server still tells this
        to actors that come.
        """
        with contextlib.ExitStack() as stack:
            if self._training is not None:
                stack.callback(self._training.close)
            if self._service is None:
                return
            stack.callback(self._service.close)
            is_complete = self.is_complete and self.failure is None
            end = self._service.complete if is_complete else self._service.close
            end()
            if self._service.is_built and self.failure is None and self._ranks.is_first:
                self._offer_score()
                self._trained.save()
            if is_complete:
                linger()

    def _complete(self) -> None:
        self.is_complete = True
        self.finished.set()

    def end_last_window(self) -> None:
        """Measures while actors are still connected; called once, before they are closed."""
        self._last_window = self._measure()

    def report(self) -> dict[str, float]:
        """Returns the metrics since the last report.

        After `end_last_window`, speed, shares of time and numbers of actors are those of then.
        """
        last = self._last_window
        if last is None:
            return self._measure()
        connected = {name: x for name, x in last.items() if name.endswith("/connected")}
        return self._speed.finish(merge_windows([last, self._measure()])) | connected

    def _measure(self) -> dict[str, float]:
        report = self.metrics.drain() | self.counters.report()
        self._reward_watch.look(report)
        if self._training is not None:
            report |= self._training.report()
        report["env_frames"] = self.counters.env_steps * self.config.env.frames_per_step
        report["wall_s"] = self.wall_s
        self._speed.add_to(report)
        self._num_envs = max(self._num_envs, int(report.get("envs/connected", 0)))
        self._offer_score()
        return report

    def _offer_score(self) -> None:
        """Lets training save the best checkpoint if the newest games are the best so far.

        Of learners that train together only the first keeps one, by the games that it serves.
        """
        score = self.counters.score(self._num_envs)
        is_wanted = self.config.learner.keep_best and self._ranks.is_first
        if score is not None and is_wanted and self.counters.learner_steps:
            self._trained.offer(score)

    def _make_task(self) -> pb.Task:
        seed = self.counters.next_actor_seed(self.config.rng_seed)
        return make_task(self.config.env, self.config.actor, base_seed=seed)

    def _build(self, spec: EnvSpec, batcher: Batcher) -> InferenceThread:
        """Builds acting and training for the first actor's environment, and starts training."""
        agent = make_agent(spec, self.config)
        self._spec = spec
        if self._ranks.is_first:
            self._say_what_is_read(spec)
        self._trained.build(spec, agent, self._checkpoint)
        inference = InferenceThread(
            spec=spec,
            agent=agent,
            config=self.config.inference,
            training=self._trained,
            batcher=batcher,
            counters=self.counters,
            metrics=self.metrics,
            device=self._device,
            rng_seed=self.config.rng_seed,
            on_failure=self.fail,
            place=self._ranks.place,
            observers=self._observers,
        )
        if self._checkpoint is not None and self._ranks.is_first:
            inference.load_rng(self._checkpoint.state["rng"]["inference"])
        self._inference = inference
        self._on_built()
        self._trained.start()
        return inference

    def _say_what_is_read(self, spec: EnvSpec) -> None:
        """Logs how the network reads observations, and what training does to rewards."""
        lines = readings(spec, self.config.network)
        if words := self.config.agent.reward_handling.words:
            lines.append(f"rewards: {words}")
        for line in lines:
            _LOG.info("%s", line, extra=STAYS)

    @property
    def _trained(self) -> Training:
        assert self._training is not None, "training is made before anything is served"
        return self._training

    def _acting_state(self) -> dict[str, Any]:
        """Returns the part of a checkpoint that training does not hold."""
        assert self._inference is not None, "nothing is trained before anything acts"
        counters = self.counters.state_dict()
        return self._inference.state_dict() | {
            "counters": counters,
            # Taken from `counters`, so that both are of one moment: acting goes on meanwhile.
            "env_steps": counters["env_steps"],
            "wall_s": self.wall_s,
            "spec": unstructure(self._spec),
        }
