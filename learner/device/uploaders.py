"""Records that travel from the host to a device beside the work that is queued there.

Used by a thread that prepares batches, and by the trainer thread that takes them.
"""

from collections.abc import Iterable
from typing import Any, Protocol

import torch
from torch import Tensor

from learner.records import map_tensors


class Uploader(Protocol):
    """Copies records of the host to one device."""

    needs_pinned_memory: bool
    """Whether the copies are fast, and let other work go on, only from pinned memory."""

    def upload(self, record: Any) -> Any:
        """Returns the record on the device; the copies have ended then."""
        ...

    def claim(self, tensors: Iterable[Tensor]) -> None:
        """Lets the calling thread's stream use tensors that `upload` made on another thread."""
        ...


class PlainUploader:
    """For a CPU, where a record stays as it is, and for a device that has one stream."""

    needs_pinned_memory = False

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def upload(self, record: Any) -> Any:
        return map_tensors(lambda x: x.to(self._device), record)

    def claim(self, tensors: Iterable[Tensor]) -> None:
        pass


def make_uploader(device: torch.device) -> Uploader:
    """Returns the uploader for a device."""
    if device.type != "cuda":
        return PlainUploader(device)
    from learner.device.cuda_uploader import CudaUploader

    return CudaUploader(device)
