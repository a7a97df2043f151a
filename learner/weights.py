"""Versions of the weights: the trainer publishes, inference acts on its own copy.

Two copies take turns. `publish` writes the idle one; `acquire` swaps it in between two
batches. So the optimiser never writes weights that a forward reads, and no forward mixes two
versions. On a GPU both sides only queue their work, so fences keep the order: a copy is written
after the forwards that read its old weights, and before those that read its new weights.

Trainer and inference may be processes, each with an object of its own: then the copies, their
versions and the lock are in memory that both processes share.
"""

import threading
from multiprocessing.synchronize import Lock
from typing import NamedTuple

import torch
from torch import Tensor, nn

from learner.concurrency.shared_tensors import SharedFile
from learner.concurrency.stopping import Stopped
from learner.device.streams import NoStreams, Streams

# Seconds between two checks for the end of the other process while waiting for the lock: a
# process that was killed may have held it.
_LOOK_UP_S = 1.0


class WeightCopies(NamedTuple):
    """The memory that both sides share."""

    networks: tuple[nn.Module, nn.Module]
    versions: Tensor
    """int64 [2]: version of the weights in each copy; -1 for none."""
    active: Tensor
    """int64 scalar: the copy that inference acts with."""


class PublishedWeights:
    """`publish` belongs to the trainer thread, `acquire` to the inference thread."""

    def __init__(self, first: nn.Module, second: nn.Module, streams: Streams | None = None) -> None:
        """Takes two networks like the trained one, on the inference device.

        `streams` are those of the device, if the two threads have one each.
        """
        self.copies = WeightCopies(
            (first.eval(), second.eval()),
            versions=torch.full((2,), -1),
            active=torch.zeros((), dtype=torch.int64),
        )
        self._lock: threading.Lock | Lock = threading.Lock()
        self._closed = False
        streams = streams or NoStreams()
        self._written = (streams.fence(), streams.fence())
        self._read = (streams.fence(), streams.fence())
        self._in_use = 0

    def share(self, lock: Lock) -> WeightCopies:
        """Moves the copies to memory that processes share; returns them for `attach`."""
        file = SharedFile()
        for network in self.copies.networks:
            for tensor in (*network.parameters(), *network.buffers()):
                tensor.data = file.copy(tensor)
        self.copies = self.copies._replace(
            versions=file.copy(self.copies.versions), active=file.copy(self.copies.active)
        )
        self._lock = lock
        return self.copies

    @classmethod
    def attach(cls, copies: WeightCopies, lock: Lock) -> "PublishedWeights":
        """Returns this process's view of the copies that `share` returned in the other process."""
        weights = cls(*copies.networks)
        weights.copies = copies
        weights._lock = lock
        return weights

    @torch.no_grad()
    def publish(self, network: nn.Module, version: int) -> None:
        """Makes the weights of `network` those of later batches. Raises Stopped."""
        self._enter()
        try:
            idle = 1 - int(self.copies.active)
            held = self.copies.networks[idle]
            targets = [*held.parameters(), *held.buffers()]
            sources = [*network.parameters(), *network.buffers()]
            self._read[idle].wait()
            for target, source in zip(targets, sources, strict=True):
                target.copy_(source, non_blocking=True)
            self._written[idle].mark()
            self.copies.versions[idle] = version
        finally:
            self._lock.release()

    def acquire(self) -> tuple[nn.Module, int]:
        """Returns (network, version), the newest published. Raises Stopped.

        The network stays unchanged until the next `acquire`; by then the caller has finished
        with it.
        """
        self._enter()
        try:
            self._read[self._in_use].mark()
            versions = self.copies.versions.tolist()
            active = max((0, 1), key=versions.__getitem__)
            self._written[active].wait()
            self._in_use = active
            self.copies.active.fill_(active)
        finally:
            self._lock.release()
        return self.copies.networks[active], versions[active]

    def close(self) -> None:
        """Ends every wait for the lock, because the process that holds it may be gone."""
        self._closed = True

    def _enter(self) -> None:
        while not self._lock.acquire(timeout=_LOOK_UP_S):
            if self._closed:
                raise Stopped
