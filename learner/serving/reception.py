"""Admits actors to the learner and gives them slots.

Called by the server thread, or by the threads that answer ingress processes.
"""

import asyncio
import threading
from collections.abc import Callable

import numpy as np

from learner.acting.batcher import Batcher
from learner.reporting.metrics import Metrics
from learner.serving.backend import Seats
from learner.serving.limits import Limits, check_room
from learner.serving.slot_allocator import SlotAllocator
from seed import wire
from seed.pb import inference_pb2 as pb
from seed.specs import EnvSpec


class Reception:
    """Seats actors, and tells the batcher and the metrics how many there are. Thread-safe."""

    def __init__(
        self,
        *,
        make_task: Callable[[], pb.Task],
        admit: Callable[[EnvSpec], str],
        batcher: Batcher,
        metrics: Metrics,
        limits: Limits | None = None,
    ) -> None:
        """`admit` takes an actor's spec and returns the run's name, or raises SeedError
        if the spec is not the run's. It may take seconds: the first call builds the
        networks. Several threads may call it at once."""
        self.make_task = make_task
        self.admit = admit
        self.limits = limits or Limits()
        self.submit = batcher.submit
        self._batcher = batcher
        self.metrics = metrics
        self._lock = threading.Lock()
        self._allocator = SlotAllocator()
        # Keyed by the actor's first slot, which is unique among the seated actors.
        self._num_envs: dict[int, int] = {}

    def seat(self, num_envs: int) -> Seats:
        """Gives an actor slots, and counts it.

        Raises:
          IncompatibleError: so many environments never fit.
          LearnerUnavailableError: they do not fit now.
        """
        with self._lock:
            check_room(num_envs, num_taken=self._allocator.num_taken, limits=self.limits)
            slots = self._allocator.allocate(num_envs)
            self._num_envs[int(slots[0])] = num_envs
            return Seats(slots, self._count())

    def leave(self, slots: np.ndarray) -> None:
        """Stops counting the actor in these slots as connected."""
        with self._lock:
            del self._num_envs[int(slots[0])]
            self._count()

    def release(self, slots: np.ndarray) -> None:
        """Takes back the slots of an actor that has left and got its last answer. Until that
        answer the inference thread may still write their state."""
        with self._lock:
            self._allocator.release(slots)

    def count_refused(self) -> None:
        """Counts a stream that was ended because of its actor's fault."""
        self.metrics.sum("actors/refused", 1)

    def _count(self) -> int:
        """Updates gauges and batcher; returns how many environments are connected."""
        num_envs = sum(self._num_envs.values())
        self.metrics.gauge("actors/connected", len(self._num_envs))
        self.metrics.gauge("envs/connected", num_envs)
        self._batcher.set_connected(num_envs)
        return num_envs


class LocalBackend:
    """The reception, for a server in the learner's own process. Made on the server thread."""

    def __init__(self, reception: Reception) -> None:
        reception.metrics.watch_cpu("server")
        self._reception = reception
        self.submit = reception.submit
        self.leave = reception.leave
        self.release = reception.release
        self.count_refused = reception.count_refused

    async def make_task(self) -> pb.Task:
        """See `Backend`."""
        return self._reception.make_task()

    async def admit(self, spec: EnvSpec) -> str:
        """See `Backend`; on a worker thread."""
        return await asyncio.to_thread(self._reception.admit, spec)

    async def seat(self, hello: wire.Hello) -> Seats:
        """See `Backend`."""
        return self._reception.seat(sum(hello.group_sizes))
