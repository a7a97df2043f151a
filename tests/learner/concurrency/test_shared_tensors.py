"""Tensors that two processes map, and those that are copied with a call."""

import gc
import multiprocessing
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from learner.concurrency import shared_tensors
from learner.concurrency.pipe_rpc import Caller, CallPickler, serve_calls
from learner.concurrency.shared_tensors import SharedFile, place_of, tensor_at

CASES = [
    torch.arange(6.0).reshape(2, 3),
    torch.arange(6).reshape(2, 3).t(),
    torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    torch.tensor(7, dtype=torch.int64),
    torch.tensor([True, False]),
    torch.arange(4, dtype=torch.bfloat16),
    torch.zeros((0, 3)),
]


def passed_on(value: Any) -> Any:
    """Returns what the other end of a pipe receives."""
    ours, theirs = multiprocessing.Pipe()
    ours.send_bytes(CallPickler.dumps(value))
    return theirs.recv()


@pytest.mark.parametrize("tensor", CASES, ids=lambda x: f"{x.dtype}{tuple(x.shape)}")
def test_tensor_in_a_file_is_passed_on_by_its_place(tensor: Tensor) -> None:
    """Both sides write and read the same elements, in the same order in memory."""
    ours = SharedFile().copy(tensor)
    theirs = passed_on(ours)
    assert torch.equal(ours, tensor) and torch.equal(theirs, tensor)
    assert theirs.stride() == ours.stride() == torch.empty_like(tensor).stride()
    assert theirs.dtype == tensor.dtype
    theirs.fill_(1)
    assert torch.equal(ours, torch.ones_like(ours))


@pytest.mark.parametrize("tensor", CASES, ids=lambda x: f"{x.dtype}{tuple(x.shape)}")
def test_other_tensor_is_passed_on_by_its_elements(tensor: Tensor) -> None:
    """It needs no shared memory, and neither side sees what the other writes."""
    before = tensor.clone()
    theirs = passed_on(tensor)
    assert torch.equal(theirs, tensor) and theirs.dtype == tensor.dtype
    theirs.fill_(1)
    assert torch.equal(tensor, before)


def test_part_of_a_tensor_is_at_its_own_place() -> None:
    """A row that is passed on is that row of the same memory."""
    ours = SharedFile().zeros((3, 2), torch.float32)
    passed_on(ours[1]).fill_(5)
    assert ours.tolist() == [[0, 0], [5, 5], [0, 0]]


def test_tensors_of_one_file_do_not_overlap() -> None:
    """Each begins at a page of its own."""
    file = SharedFile()
    first, second = (file.zeros((3,), torch.float64) for _ in range(2))
    first.fill_(1)
    assert second.tolist() == [0, 0, 0]


def test_network_is_passed_on_with_its_shared_weights() -> None:
    """An LSTM keeps its weights a second time; both refer to the shared memory."""
    ours, file = nn.LSTM(2, 3), SharedFile()
    for weight in ours.parameters():
        weight.data = file.copy(weight)
    theirs: nn.LSTM = passed_on(ours)
    row = torch.randn(1, 1, 2)
    for weight in ours.parameters():
        weight.data.fill_(0.25)
    assert torch.equal(theirs(row)[0], ours(row)[0])
    assert all(weight.requires_grad for weight in theirs.parameters())


def test_file_ends_with_its_last_tensor() -> None:
    """Its descriptor is closed, and its address is forgotten."""
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    tensor = SharedFile().zeros((2,), torch.int64)
    place = place_of(tensor)
    assert place is not None and os.path.exists(place.path)
    attached = tensor_at(place)
    del tensor
    gc.collect()
    assert attached.tolist() == [0, 0]
    del attached
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
    assert place.path not in {path for path, _, _ in shared_tensors._PLACES.values()}


def double(tensor: Tensor) -> Tensor:
    """Returns a tensor that is in no file."""
    return tensor.mul_(2)


def serve(connection: Any) -> None:
    """Answers calls in a process of its own."""
    functions: dict[str, Callable[..., Any]] = {"double": double}
    serve_calls(connection, functions)


def test_another_process_maps_the_tensor() -> None:
    """What it writes is seen here, and what it returns is the same memory."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    call = Caller(ours)
    shared, private = SharedFile().copy(torch.ones(2)), torch.ones(2)
    assert call("double", shared).tolist() == shared.tolist() == [2, 2]
    assert call("double", private).tolist() == [2, 2]
    assert private.tolist() == [1, 1]
    call.close()
    process.join()
