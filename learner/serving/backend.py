"""What a gRPC server needs from the learner behind it, which may be another process.

Implemented by `LocalBackend` (reception.py) in the learner's own process, and by
`RemoteBackend` (ingress/backend.py) in one that only serves.
"""

from typing import NamedTuple, Protocol

import numpy as np

from learner.acting.batcher import Request
from seed import wire
from seed.pb import inference_pb2 as pb
from seed.specs import EnvSpec


class Seats(NamedTuple):
    """Where an actor's environments sit for as long as it stays."""

    slots: np.ndarray
    """int64 [environments], in the order of its groups."""
    envs_connected: int
    """Environments of all actors, its own included."""


class Backend(Protocol):
    """What a gRPC server needs from the learner. All methods run on the server's event loop."""

    async def make_task(self) -> pb.Task:
        """Returns the task of the next actor."""
        ...

    async def admit(self, spec: EnvSpec) -> str:
        """Returns the run's name; may take seconds. Raises SeedError if the spec differs from the
        run's."""
        ...

    async def seat(self, hello: wire.Hello) -> Seats:
        """Gives an actor slots, and counts it. Raises SeedError if there is no room."""
        ...

    def submit(self, request: Request) -> None:
        """Hands a step to the batcher; the request's `reply` comes on any thread."""
        ...

    def leave(self, slots: np.ndarray) -> None:
        """Stops counting the actor in these slots as connected."""
        ...

    def release(self, slots: np.ndarray) -> None:
        """Takes slots back from an actor that has left and has no request in flight."""
        ...

    def count_refused(self) -> None:
        """Counts a stream that was ended because of its actor's fault."""
        ...
