"""Tensors in memory that two processes map, outside /dev/shm.

Used by the trainer process and its learner process, on any thread. torch keeps shared tensors in
/dev/shm, of which a container has 64 MB unless it is told otherwise. Here they lie in anonymous
files, which only the memory of the machine or of the container bounds (Linux; elsewhere torch's
own shared memory is used). `CallPickler` passes such a tensor on as a `Place`.
"""

import mmap
import os
import weakref
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from learner.concurrency.pipe_rpc import CallPickler

_HAS_ANONYMOUS_FILES = hasattr(os, "memfd_create")


class Place(NamedTuple):
    """Where another process finds a tensor."""

    path: str
    """Of the file; it can be opened while the process that made the tensor holds it."""
    offset: int
    num_bytes: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    storage_offset: int


class _Mapping(mmap.mmap):
    """A mapped part of a file. A tensor holds it, and with it the file."""

    file: "SharedFile | None" = None


# The part of a file that each storage occupies, by the storage's address: (path, offset, bytes).
_PLACES: dict[int, tuple[str, int, int]] = {}


class SharedFile:
    """Makes tensors in one anonymous file, which ends with the last process that maps it."""

    def __init__(self) -> None:
        self._num_bytes = 0
        if _HAS_ANONYMOUS_FILES:
            self._descriptor = os.memfd_create("seed-tensors")
            self._path = f"/proc/{os.getpid()}/fd/{self._descriptor}"
            weakref.finalize(self, os.close, self._descriptor)

    def zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Returns a tensor of zeros in the file."""
        return self._make(torch.empty(shape, dtype=dtype, device="meta"))

    def copy(self, tensor: Tensor) -> Tensor:
        """Returns a copy of `tensor` in the file, with the same order of its elements."""
        return self._make(torch.empty_like(tensor, device="meta")).copy_(tensor.detach())

    def _make(self, like: Tensor) -> Tensor:
        if not _HAS_ANONYMOUS_FILES:
            return torch.zeros_like(like, device="cpu").share_memory_()
        num_bytes = max(1, like.numel() * like.itemsize)
        offset = self._num_bytes
        # A mapping begins at a whole page.
        self._num_bytes += -(-num_bytes // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        os.ftruncate(self._descriptor, self._num_bytes)
        place = Place(
            self._path, offset, num_bytes, like.dtype, tuple(like.shape), like.stride(), 0
        )
        return _map(self._descriptor, place, self)


def place_of(tensor: Tensor) -> Place | None:
    """Returns where another process finds `tensor`; None if it lies in no `SharedFile`."""
    part = _PLACES.get(tensor.untyped_storage().data_ptr())
    if part is None:
        return None
    shape = tuple(tensor.shape)
    return Place(*part, tensor.dtype, shape, tensor.stride(), int(tensor.storage_offset()))


def tensor_at(place: Place) -> Tensor:
    """Returns the tensor that another process, or this one, has at `place`."""
    descriptor = os.open(place.path, os.O_RDWR)
    try:
        return _map(descriptor, place)
    finally:
        os.close(descriptor)


def _map(descriptor: int, place: Place, file: SharedFile | None = None) -> Tensor:
    mapping = _Mapping(descriptor, place.num_bytes, offset=place.offset)
    mapping.file = file
    storage = torch.frombuffer(mapping, dtype=torch.uint8).untyped_storage()
    _PLACES[storage.data_ptr()] = (place.path, place.offset, place.num_bytes)
    weakref.finalize(mapping, _PLACES.pop, storage.data_ptr())
    tensor = torch.empty(0, dtype=place.dtype)
    return tensor.set_(storage, place.storage_offset, place.shape, place.stride)


def _reduce(tensor: Tensor) -> Any:
    """Says how `CallPickler` writes a tensor: its place, or else its elements.

    torch's own way would copy it to /dev/shm.
    """
    if not _HAS_ANONYMOUS_FILES:
        return NotImplemented
    if (place := place_of(tensor)) is not None:
        return tensor_at, (place,)
    elements = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return _tensor_of, (elements.numpy().tobytes(), tensor.dtype, tuple(tensor.shape))


def _reduce_parameter(parameter: nn.Parameter) -> Any:
    if not _HAS_ANONYMOUS_FILES:
        return NotImplemented
    return nn.Parameter, (parameter.detach(), parameter.requires_grad)


def _tensor_of(elements: bytes, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    if not elements:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(elements), dtype=dtype).reshape(shape)


CallPickler.reducers[Tensor] = _reduce
CallPickler.reducers[nn.Parameter] = _reduce_parameter
