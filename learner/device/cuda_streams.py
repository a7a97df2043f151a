"""Two streams of a GPU: one that acts, with priority, and the default one, which trains.

PyTorch makes its streams so that the stream of acting and the default one do not wait for
each other unless they are told to.
"""

import contextlib
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor


class CudaFence:
    """An event, for the streams of one GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._event = torch.cuda.Event()

    def mark(self) -> None:
        self._event.record(torch.cuda.current_stream(self._device))

    def wait(self) -> None:
        self._event.wait(torch.cuda.current_stream(self._device))


class CudaStreams:
    """See `learner.device.streams.Streams`."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # Lower numbers go first: a forward pass of acting is short and actors wait for it.
        # An update is long and no actor waits for it.
        self._acting = torch.cuda.Stream(device, priority=-1)
        self._training = torch.cuda.default_stream(device)

    @contextlib.contextmanager
    def acting(self) -> Iterator[None]:
        # The networks and buffers of acting were built on the default stream.
        self._acting.wait_stream(self._training)
        with torch.cuda.stream(self._acting):
            yield

    def fence(self) -> CudaFence:
        return CudaFence(self._device)

    def give_to_training(self, tensors: Iterable[Tensor]) -> None:
        # Called here rather than on the trainer's thread, so that no event need travel with
        # the tensors: the trainer queues its work on them after this wait.
        self._training.wait_stream(torch.cuda.current_stream(self._device))
        for tensor in tensors:
            tensor.record_stream(self._training)
