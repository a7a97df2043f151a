"""The learner's acting half behind real gRPC, with its unrolls collected.

Everything of a run but the trainer: server, batcher, inference, unroll store.
Actors are real processes. Waiting is on conditions, never on time.
"""

import contextlib
import multiprocessing
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from torch import nn

from learner.acting.batcher import Batcher
from learner.acting.inference_thread import InferenceThread
from learner.acting.observers import StepObserver
from learner.agents.base import Agent
from learner.agents.steps import example_step
from learner.concurrency.stopping import Stopped
from learner.config.run_config import ActorConfig, InferenceConfig
from learner.records import Completed, Unrolls
from learner.reporting.counters import Counters
from learner.reporting.metrics import Metrics
from learner.service import Service, ServingConfig
from learner.serving.limits import Limits
from learner.serving.session import Timeouts
from learner.serving.task import make_task
from learner.training.process.unroll_ring import UnrollReader, UnrollWriter, make_unroll_ring
from learner.weights import PublishedWeights
from seed.env_config import EnvConfig
from seed.pb import inference_pb2 as pb
from seed.specs import EnvSpec

# Far beyond any wait here, so it passes only in a hang.
TIMEOUT_S = 60.0


def actor_process(address: str, *flags: str) -> subprocess.Popen[bytes]:
    """Starts an actor; the caller must end it."""
    return subprocess.Popen([sys.executable, "-m", "actors", "--learner", address, *flags])


class TellingBatcher(Batcher):
    """Tells when an actor has come or left."""

    def __init__(self, config: InferenceConfig, tell: Callable[[int], None]) -> None:
        super().__init__(config)
        self._tell = tell

    def set_connected(self, num_envs: int) -> None:
        super().set_connected(num_envs)
        self._tell(num_envs)


class CollectedUnrolls:
    """Stands in for training: a test publishes weights, and collects the unrolls.

    With `ring` they pass through the memory and the pipe that lead to a trainer process.
    """

    def __init__(
        self, agent: Agent, example: Unrolls, collect: Callable[[Completed], None], *, ring: bool
    ) -> None:
        networks = [agent.acting_part(agent.build_network()) for _ in range(2)]
        self.weights = PublishedWeights(networks[0], networks[1])
        self._collect = collect
        self._writer: UnrollWriter | None = None
        if ring:
            memory = make_unroll_ring(example, unroll_length=agent.unroll_length, num_places=8)
            self._write_end, read_end = multiprocessing.Pipe()
            self._writer = UnrollWriter(memory, self._write_end)
            self._reader = UnrollReader(memory, read_end)
            self._thread = threading.Thread(target=self._receive, daemon=True)
            self._thread.start()

    def put(self, completed: Completed) -> None:
        if self._writer is not None:
            self._writer.put(completed)
        else:
            self._collect(completed)

    def stop(self) -> None:
        """No call of `put` waits for long, since the ring is always emptied."""

    def close(self) -> None:
        """Collects what is still in the ring, when no more is put."""
        if self._writer is not None:
            self._write_end.close()
            self._thread.join()

    def _receive(self) -> None:
        try:
            while True:
                self._collect(self._reader.get())
        except Stopped:
            return
        finally:
            self._reader.close()


class ActingHarness:
    """Serves `make_agent(spec)` on a unix socket in `directory`, by the learner's own service."""

    def __init__(
        self,
        directory: Path,
        env: EnvConfig,
        make_agent: Callable[[EnvSpec], Agent],
        inference: InferenceConfig | None = None,
        timeouts: Timeouts | None = None,
        limits: Limits | None = None,
        ingress_processes: int = 0,
        *,
        ring: bool = False,
        observers: Sequence[StepObserver] = (),
    ) -> None:
        self.address = f"unix:{directory / 'learner.sock'}"
        self.completed: list[Completed] = []
        self.counters = Counters()
        self.networks: dict[int, nn.Module] = {}
        """Acting parts of published weights, by version."""
        self.num_tasks = 0
        """Tasks that actors have fetched: one for each connection."""
        self.addresses: list[str] = []
        """The addresses that it listens at; actors take turns."""
        self._env = env
        self._make_agent = make_agent
        self._inference = inference or InferenceConfig()
        self._ring = ring
        self._observers = observers
        self._envs_connected = 0
        self._metrics = Metrics()
        self._changed = threading.Condition()
        self._failure: BaseException | None = None
        self._training: CollectedUnrolls | None = None
        self._actors: list[subprocess.Popen[bytes]] = []
        self._service = Service(
            ServingConfig(
                inference=self._inference,
                ingress_processes=ingress_processes,
                timeouts=timeouts or Timeouts(),
                limits=limits or Limits(),
            ),
            name="harness",
            make_task=self._make_task,
            build=self._build,
            on_failure=self._fail,
            metrics=self._metrics,
            batcher=TellingBatcher(self._inference, self._connected),
        )

    def __enter__(self) -> Self:
        self.addresses = self._service.start((self.address,))
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for actor in self._actors:
            actor.kill()
            actor.wait()
        self._service.close()
        if self._training is not None:
            self._training.close()
        if self._failure is not None and exc is None:
            raise self._failure

    @contextlib.contextmanager
    def actor(self, *flags: str, address: str | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """Runs an actor process, and kills it (SIGKILL) on leaving."""
        if address is None:
            address = self.addresses[len(self._actors) % len(self.addresses)]
        process = actor_process(address, *flags)
        self._actors.append(process)
        yield process
        process.kill()
        process.wait()

    @property
    def ingress_pids(self) -> list[int]:
        """Ids of the ingress processes."""
        return self._service.ingress_pids

    @property
    def unrolls(self) -> list[Unrolls]:
        """Returns the unrolls of all actors that are complete so far."""
        return [completed.unrolls for completed in self.completed]

    def publish(self, network: nn.Module, version: int) -> None:
        """Publishes an acting part as `version`, which acts from the next batch on."""
        assert self._training is not None, "no actor has connected yet"
        self.networks[version] = network
        self._training.weights.publish(network, version)

    def wait_until(self, enough: Callable[[list[Unrolls]], bool]) -> list[Unrolls]:
        """Blocks until `enough` accepts the unrolls completed so far; returns them."""
        with self._changed:
            done = self._changed.wait_for(lambda: self._failure or enough(self.unrolls), TIMEOUT_S)
            if self._failure is not None:
                raise self._failure
            assert done, f"not enough in {TIMEOUT_S:g} s: {self._count()} unrolls"
            return list(self.unrolls)

    def wait_for_connected(self, num_envs: int) -> None:
        """Blocks until `count` environments are connected."""
        with self._changed:
            done = self._changed.wait_for(lambda: self._envs_connected == num_envs, TIMEOUT_S)
        assert done, f"{self._envs_connected} environments are connected"

    def wait_for_tasks(self, num_tasks: int) -> None:
        """Blocks until `count` tasks have been fetched."""
        with self._changed:
            done = self._changed.wait_for(lambda: self.num_tasks >= num_tasks, TIMEOUT_S)
        assert done, f"{self.num_tasks} tasks were asked for"

    def wait_for_more(self, num_unrolls: int) -> list[Unrolls]:
        """Blocks until `count` more unrolls are complete, and returns all so far."""
        wanted = self._count() + num_unrolls
        return self.wait_until(lambda _: self._count() >= wanted)

    def _count(self) -> int:
        return sum(unrolls.num_unrolls for unrolls in self.unrolls)

    def _emit(self, completed: Completed) -> None:
        with self._changed:
            self.completed.append(completed)
            self._changed.notify_all()

    def _connected(self, num_envs: int) -> None:
        with self._changed:
            self._envs_connected = num_envs
            self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    def _make_task(self) -> pb.Task:
        with self._changed:
            self.num_tasks += 1
            self._changed.notify_all()
        return make_task(
            self._env, ActorConfig(envs_per_group=2, num_groups=2), base_seed=self.num_tasks
        )

    def _build(self, spec: EnvSpec, batcher: Batcher) -> InferenceThread:
        torch.manual_seed(0)
        agent = self._make_agent(spec)
        self._training = CollectedUnrolls(
            agent, example_step(spec, agent), self._emit, ring=self._ring
        )
        self.publish(agent.acting_part(agent.build_network()), 0)
        return InferenceThread(
            spec=spec,
            agent=agent,
            config=self._inference,
            training=self._training,
            batcher=batcher,
            counters=self.counters,
            metrics=self._metrics,
            device=torch.device("cpu"),
            rng_seed=0,
            on_failure=self._fail,
            observers=self._observers,
        )
