"""The order of work on a device that two threads share, acting on one and training on the other.

A GPU works through streams: the work of one stream runs in order, the work of two streams
runs side by side. Acting has a stream of its own (`cuda_streams.py`) and training the default
one; this interface orders what one hands to the other. A CPU has done the work when a call
returns, so nothing need be ordered there.
"""

import contextlib
from collections.abc import Iterable
from typing import Protocol

import torch
from torch import Tensor


class Fence(Protocol):
    """A point in the work of one stream that others can wait for."""

    def mark(self) -> None:
        """Puts the fence after all work queued so far on the calling thread's stream."""
        ...

    def wait(self) -> None:
        """Makes work that is queued from now on on the calling thread's stream wait for the fence.

        The thread itself does not wait. A fence that was never marked holds nothing up.
        """
        ...


class Streams(Protocol):
    """The streams of one device."""

    def acting(self) -> contextlib.AbstractContextManager[None]:
        """Within the context, the calling thread's work goes to the stream of acting."""
        ...

    def fence(self) -> Fence:
        """Returns a fence that is not marked yet."""
        ...

    def give_to_training(self, tensors: Iterable[Tensor]) -> None:
        """Lets the stream of training use tensors that the calling thread's stream makes.

        Args:
          tensors: made on the calling thread's stream. They may be dropped at any time
            after: their memory is not used again before training's queued work has read it.
        """
        ...


class NoFence:
    """For a device that has done the work when a call returns."""

    def mark(self) -> None:
        pass

    def wait(self) -> None:
        pass


class NoStreams:
    """The streams of a CPU, or of a single thread on a GPU, which uses one stream for all."""

    def acting(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def fence(self) -> Fence:
        return NoFence()

    def give_to_training(self, tensors: Iterable[Tensor]) -> None:
        pass


def make_streams(device: torch.device) -> Streams:
    """Returns the streams of a device."""
    if device.type != "cuda":
        return NoStreams()
    from learner.device.cuda_streams import CudaStreams

    return CudaStreams(device)
