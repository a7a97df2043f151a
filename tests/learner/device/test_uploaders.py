"""Records that travel to a device: whole, in order, and not copied where they are already."""

import pytest
import torch

from learner.device.uploaders import make_uploader
from learner.records import tensors_of
from tests.support.pretended_device import DEVICE

NO_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def record() -> dict[str, object]:
    """Returns a record with tensors at several depths."""
    return {"a": torch.arange(6).reshape(2, 3), "b": (torch.ones(2), None)}


@pytest.mark.parametrize(
    "device", [DEVICE, pytest.param(torch.device("cuda"), marks=[pytest.mark.gpu, NO_CUDA])]
)
def test_record_arrives_whole(device: torch.device) -> None:
    """Every tensor is on the device with its numbers, and may be used on any thread's stream."""
    uploader = make_uploader(device)
    uploaded = uploader.upload(record())
    uploader.claim(tensors_of(uploaded))
    for there, here in zip(tensors_of(uploaded), tensors_of(record()), strict=True):
        assert there.device.type == device.type
        assert torch.equal(there.cpu(), here)
    assert uploaded["b"][1] is None


def test_record_of_the_cpu_is_not_copied() -> None:
    """On a CPU a batch is used where replay made it."""
    uploader, made = make_uploader(torch.device("cpu")), record()
    assert not uploader.needs_pinned_memory
    for there, here in zip(tensors_of(uploader.upload(made)), tensors_of(made), strict=True):
        assert there.data_ptr() == here.data_ptr()
