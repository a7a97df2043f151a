"""The order of work on a device that two threads share, acting on one and training on the other.

A GPU works through streams: what is queued in one runs in order, what is queued in two
runs side by side. Acting has a stream of its own there (`cuda_streams.py`), training the
default one, and what one gives to the other is ordered here. A CPU does everything at
once, in the order in which it is asked: nothing need be done.
"""

import contextlib
from collections.abc import Iterable
from typing import Protocol

import torch
from torch import Tensor


class Fence(Protocol):
    """A point in the work of one stream that others can wait for."""

    def mark(self) -> None:
        """Puts the fence behind all that the calling thread's stream has been given."""
        ...

    def wait(self) -> None:
        """Keeps what the calling thread's stream is given from now on behind the fence.

        The thread itself goes on. Where nothing was marked there is nothing to wait for.
        """
        ...


class Streams(Protocol):
    """The streams of one device."""

    def acting(self) -> contextlib.AbstractContextManager[None]:
        """Within, what the calling thread does goes to the stream of inference."""
        ...

    def fence(self) -> Fence:
        """Returns one that is not marked yet."""
        ...

    def give_to_training(self, tensors: Iterable[Tensor]) -> None:
        """Lets the stream of training use what the calling thread's stream makes.

        Args:
          tensors: made on the calling thread's stream. They may be dropped at any time
            after: their memory is not used again before training is through with it.
        """
        ...


class NoFence:
    """For work that is done by the time that it has been asked for."""

    def mark(self) -> None:
        pass

    def wait(self) -> None:
        pass


class NoStreams:
    """Those of a CPU, or of a single thread on a GPU, which has all in one stream."""

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
