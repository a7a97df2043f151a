"""The parts that serve actors, joined in one place: reception, server, batcher, inference thread.

    actors -> server -> reception (who may come, who sits where)
                  `---> batcher -> inference thread -> training
              <-------------------------'

A run, `seed eval`, `seed load` and the tests use it, so all of them serve alike and close in the
same order. The first actor's spec shows which environment is served: then `build` makes the
acting side, on a worker thread of the server.
"""

import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import Protocol, Self

from learner.acting.batcher import Batcher
from learner.config.run_config import InferenceConfig, RunConfig
from learner.reporting.metrics import Metrics
from learner.serving.factory import Server, make_server
from learner.serving.limits import Limits
from learner.serving.reception import Reception
from learner.serving.server import check_same_environment
from learner.serving.session import Timeouts
from seed.errors import LearnerUnavailableError, SpecError
from seed.pb import inference_pb2 as pb
from seed.security import PLAIN_TEXT, Security
from seed.specs import EnvSpec


class Acting(Protocol):
    """Answers the batcher's requests on a thread of its own."""

    def start(self) -> None:
        """Starts the thread."""
        ...

    def stop(self) -> None:
        """Wakes the thread if it waits for anything but the batcher, which is closed already."""
        ...

    def join(self) -> None:
        """Waits for the thread."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServingConfig:
    """How actors are served."""

    inference: InferenceConfig = InferenceConfig()
    """When batches close."""
    security: Security = PLAIN_TEXT
    """What actors have to present."""
    ingress_processes: int = 0
    """Processes that serve; 0: a thread of this process serves."""
    timeouts: Timeouts = Timeouts()
    """How long actors may take."""
    limits: Limits = Limits()
    """How many environments and streams are served at once."""

    @classmethod
    def of_run(cls, config: RunConfig, security: Security = PLAIN_TEXT) -> Self:
        """Returns how a run serves its actors."""
        inference = config.inference
        return cls(
            inference=inference,
            security=security,
            ingress_processes=config.learner.ingress_processes,
            timeouts=Timeouts(step_s=inference.actor_timeout_s),
            limits=Limits(max_envs=inference.max_envs),
        )


class Service:
    """Serves actors from `start` to `close`."""

    def __init__(
        self,
        config: ServingConfig,
        *,
        name: str,
        make_task: Callable[[], pb.Task],
        build: Callable[[EnvSpec, Batcher], Acting],
        on_failure: Callable[[BaseException], None],
        metrics: Metrics,
        spec: EnvSpec | None = None,
        batcher: Batcher | None = None,
    ) -> None:
        """Nothing runs yet.

        Args:
          config: how actors are served.
          name: of the run; the welcome tells it to actors.
          make_task: returns the task of the next actor.
          build: returns the acting side for the first actor's environment, not started. If it
            raises a SpecError, only this actor is refused; any other exception is a failure.
          on_failure: called, on any thread, with the error that ends the service.
          metrics: gets the measured values.
          spec: of the environment, if it is known already; other actors are refused.
          batcher: a test's own; by default one that follows `config`.
        """
        self._config = config
        self._name = name
        self._make_task = make_task
        self._build = build
        self._on_failure = on_failure
        self._metrics = metrics
        self._spec = spec
        self._batcher = batcher or Batcher(config.inference)
        self._admission = threading.Lock()
        self._acting: Acting | None = None
        self._server: Server | None = None
        self._is_closed = False
        self._has_stopped = False

    @property
    def spec(self) -> EnvSpec | None:
        """Spec of the environment; None until it is known."""
        return self._spec

    @property
    def is_built(self) -> bool:
        """Whether an actor has been admitted, so that the acting side runs."""
        return self._acting is not None

    @property
    def ingress_pids(self) -> list[int]:
        """Ids of the processes that serve now; none where a thread serves."""
        return [] if self._server is None else self._server.pids

    def start(self, addresses: Sequence[str]) -> list[str]:
        """Starts serving; returns the addresses bound.

        Raises:
          ConfigError: an address that cannot be bound, or ingress processes on a system that
            cannot have any.
        """
        reception = Reception(
            make_task=self._make_task,
            admit=self._admit,
            batcher=self._batcher,
            metrics=self._metrics,
            limits=self._config.limits,
        )
        self._server = make_server(
            reception,
            addresses,
            self._on_failure,
            self._config.security,
            self._config.timeouts,
            ingress_processes=self._config.ingress_processes,
        )
        return self._server.start()

    def complete(self) -> None:
        """Ends acting, and tells all actors until `close` that the run is complete."""
        if self._server is not None:
            self._server.complete()
        self._stop_acting()

    def close(self) -> None:
        """Ends every stream, closes the batcher, then ends the acting side; once is enough."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self._stop_acting()

    def _stop_acting(self) -> None:
        self._batcher.close()
        # A worker thread may still be building for an actor whose stream has ended.
        with self._admission:
            self._is_closed = True
        if self._acting is not None and not self._has_stopped:
            self._has_stopped = True
            self._acting.stop()
            self._acting.join()

    def _admit(self, spec: EnvSpec) -> str:
        """Builds the acting side for the first actor's spec; compares later specs with it."""
        # The worker thread holds the lock: the stream that waits may end before the build does.
        with self._admission:
            if self._is_closed:
                raise LearnerUnavailableError("the learner has ended")
            if self._spec is not None:
                check_same_environment(self._spec, spec)
            if self._acting is None:
                self._start_acting(spec)
        return self._name

    def _start_acting(self, spec: EnvSpec) -> None:
        try:
            acting = self._build(spec, self._batcher)
            acting.start()
        except SpecError:
            raise  # the actor's fault: it is refused
        except BaseException as error:
            self._on_failure(error)
            raise
        self._spec, self._acting = spec, acting
