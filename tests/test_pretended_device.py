"""The pretended GPU of tests/support: numbers as on the CPU, and an honest tally."""

import threading

import pytest
import torch
from torch import nn

from tests.support.pretended_device import DEVICE, PretendedTensor, WrongDeviceError, tallied


def test_numbers_and_gradients_are_those_of_the_cpu() -> None:
    """A small network's output and gradients, forward and backward, on any thread."""
    torch.manual_seed(0)
    network, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(3, 4)
    network(x).square().sum().backward()
    wanted = [p.grad.clone() for p in network.parameters() if p.grad is not None]
    network.zero_grad()
    network.to(DEVICE)
    thread = threading.Thread(target=lambda: network(x.to(DEVICE)).square().sum().backward())
    thread.start()
    thread.join()
    found = [p.grad for p in network.parameters() if p.grad is not None]
    assert all(isinstance(gradient, PretendedTensor) for gradient in found)
    for gradient, expected in zip(found, wanted, strict=True):
        torch.testing.assert_close(gradient.cpu(), expected)


def test_cpu_tensor_beside_a_device_tensor_is_refused() -> None:
    """But a scalar of the CPU is passed to the kernel by value."""
    x = torch.ones(3, device=DEVICE)
    with pytest.raises(WrongDeviceError, match=r"add.*: a CPU tensor \(3,\)"):
        x.add(torch.ones(3))
    assert (x + torch.tensor(1.0)).cpu().tolist() == [2, 2, 2]


def test_a_device_tensor_has_no_numpy_array() -> None:
    """As on a GPU: its memory is not the host's."""
    with pytest.raises(TypeError, match="to numpy"):
        torch.ones(3, device=DEVICE).numpy()


def test_launches_uploads_and_waits_are_tallied() -> None:
    """Views cost nothing; a boolean mask and a read-back make the host wait."""
    x, mask = torch.ones(4), torch.tensor([True, False, True, False])
    with tallied() as uploading:
        there = x.to(DEVICE, non_blocking=True)
    assert (uploading.num_launches, uploading.num_uploads, uploading.num_waits) == (1, 1, 0)
    with tallied() as blocking:
        mask = mask.to(DEVICE)
    assert (blocking.num_uploads, blocking.num_waits) == (1, 1)
    with tallied() as computing:
        (there[:2].reshape(1, 2) + 1).mul_(2)
    assert (computing.launches, computing.num_waits) == ({"add": 1, "mul_": 1}, 0)
    with tallied() as waiting:
        there[mask].sum().item()
    assert waiting.num_waits == 2


def test_a_row_of_numbers_becomes_a_device_tensor() -> None:
    """`torch.tensor` copies inside PyTorch, which is an upload that waits."""
    with tallied() as tally:
        row = torch.tensor([1, 2], device=DEVICE)
    assert row.tolist() == [1, 2]
    assert (tally.num_uploads, tally.num_waits) == (1, 1)


def test_memory_made_for_inference_is_on_the_device() -> None:
    """Acting makes its tensors in inference mode, and reads weights made before."""
    normal = torch.zeros(2, 1, device=DEVICE)
    with torch.inference_mode():
        made = torch.zeros(2, 2, device=DEVICE)
        assert made[0].add_(1).t() is not made
        made[1:] += 2
        assert not normal.t().is_inference()
    assert made.is_inference()
    assert made.cpu().tolist() == [[1, 1], [2, 2]]


def test_lstm_is_one_launch_each_way() -> None:
    """As cuDNN has it: all rows of a segment at once. Outputs and gradients are the CPU's."""
    torch.manual_seed(0)
    lstm, x = nn.LSTM(3, 4), torch.randn(5, 2, 3)
    wanted = lstm(x)[0]
    wanted.sum().backward()
    gradient = lstm.weight_hh_l0.grad
    assert gradient is not None
    lstm.zero_grad()
    lstm.to(DEVICE)
    with tallied() as tally:
        found = lstm(x.to(DEVICE))[0]
        found.sum().backward()
    assert (tally.launches["lstm"], tally.launches["lstm_backward"]) == (1, 1)
    torch.testing.assert_close(found.cpu(), wanted)
    assert lstm.weight_hh_l0.grad is not None
    torch.testing.assert_close(lstm.weight_hh_l0.grad.cpu(), gradient)
    with torch.inference_mode(), tallied() as acting:
        torch.testing.assert_close(lstm(x.to(DEVICE))[0].cpu(), wanted)
    assert acting.launches["lstm"] == 1


def test_gradients_are_right_in_any_memory_layout() -> None:
    """A module whose parameters are laid out anew has the numbers in the new layout."""
    torch.manual_seed(0)
    network, x = nn.Conv2d(3, 4, 3), torch.randn(2, 3, 5, 5)
    network(x).square().sum().backward()
    wanted = network.weight.grad
    assert wanted is not None
    network.zero_grad()
    network.to(DEVICE).to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    assert isinstance(network.weight, PretendedTensor)
    assert network.weight.host.stride() == network.weight.stride()
    network(x.to(DEVICE)).square().sum().backward()
    assert network.weight.grad is not None
    torch.testing.assert_close(network.weight.grad.cpu(), wanted)
