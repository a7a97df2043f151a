"""Versions of the weights: the trainer publishes, inference acts on its own copy.

Two copies take turns. `publish` writes the idle one; `acquire` swaps it in between
two batches. So the optimiser never writes what a forward reads, and no forward
mixes two versions. On a GPU both threads use the default stream, which keeps the
copy behind the forwards that read the idle weights before it.
"""

import threading

import torch
from torch import nn


class PublishedWeights:
    """`publish` belongs to the trainer thread, `acquire` to the inference thread."""

    def __init__(self, active: nn.Module, idle: nn.Module) -> None:
        """Takes two networks like the trained one, on the inference device."""
        self._active = active.eval()
        self._idle = idle.eval()
        self._active_version = -1
        self._idle_version = -1
        self._lock = threading.Lock()

    @torch.no_grad()
    def publish(self, network: nn.Module, version: int) -> None:
        """Makes the weights of `network` those of the batches to come."""
        with self._lock:
            targets = [*self._idle.parameters(), *self._idle.buffers()]
            sources = [*network.parameters(), *network.buffers()]
            for target, source in zip(targets, sources, strict=True):
                target.copy_(source, non_blocking=True)
            self._idle_version = version

    def acquire(self) -> tuple[nn.Module, int]:
        """Returns (network, version), the newest published.

        The network stays untouched until the next `acquire`, by when the caller has
        finished with it.
        """
        with self._lock:
            if self._idle_version > self._active_version:
                self._active, self._idle = self._idle, self._active
                self._active_version = self._idle_version
            return self._active, self._active_version
