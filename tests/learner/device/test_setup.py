"""The device of a learner process: which one it uses, its threads, and what is refused."""

import os
import shutil

import pytest
import torch

from learner.config.torchrun import Place
from learner.device import setup
from learner.device.setup import (
    check_can_compile,
    device_of,
    num_train_threads,
    set_up_torch,
    uses_trainer_process,
)
from seed.errors import ConfigError

COMPILER = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
NO_COMPILER = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


@pytest.mark.parametrize(("cores", "wanted"), [(1, 1), (2, 1), (5, 2), (8, 4), (64, 4)])
def test_half_of_the_cores_train(monkeypatch: pytest.MonkeyPatch, cores: int, wanted: int) -> None:
    """The other half acts and steps local environments; a GPU needs one thread."""
    monkeypatch.setattr(setup, "usable_cores", lambda: cores)
    assert num_train_threads(torch.device("cpu"), 0) == wanted
    assert num_train_threads(torch.device("cpu"), 3) == 3
    assert num_train_threads(torch.device("cuda"), 3) == 1


@pytest.mark.parametrize("wanted", ["auto", "thread"])
def test_gpu_is_trained_on_by_a_thread(wanted: str) -> None:
    """Training on a GPU stays in the learner process, and a trainer process is refused."""
    cuda = torch.device("cuda")
    assert not uses_trainer_process(cuda, wanted)
    with pytest.raises(ConfigError, match="train_in: expected auto or thread on cuda, got process"):
        uses_trainer_process(cuda, "process")


def test_each_learner_of_a_machine_takes_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The local rank numbers the GPU, unless the flag names a device or there is no GPU."""
    second = Place(rank=3, size=4, local_rank=1)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert device_of(second, "auto") == device_of(second, "cuda") == "cuda:1"
    assert device_of(second, "cpu") == "cpu"
    assert device_of(Place(), "auto") == "auto"
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert device_of(second, "auto") == "auto"


def test_operations_get_the_cores_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads that train share half of the cores, unless the config says how many."""
    chosen: list[int] = []
    monkeypatch.setattr(setup, "usable_cores", lambda: 16)
    monkeypatch.setattr(setup, "keep_freed_memory", lambda: None)
    monkeypatch.setattr("torch.set_num_threads", chosen.append)
    monkeypatch.setattr("torch.set_num_interop_threads", lambda threads: None)
    set_up_torch("cpu", torch_threads=0, train_threads=2)
    set_up_torch("cpu", torch_threads=5, train_threads=2)
    assert chosen == [4, 5]


def test_operations_side_by_side_get_the_usable_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch itself knows no quota, and takes the number only once a process."""
    chosen: list[int] = []

    def choose(threads: int) -> None:
        chosen.append(threads)
        if len(chosen) > 1:
            raise RuntimeError("cannot set number of interop threads after parallel work")

    monkeypatch.setattr(setup, "usable_cores", lambda: 3)
    monkeypatch.setattr(setup, "keep_freed_memory", lambda: None)
    monkeypatch.setattr("torch.set_num_threads", lambda threads: None)
    monkeypatch.setattr("torch.set_num_interop_threads", choose)
    for _ in range(2):
        set_up_torch("cpu", torch_threads=0)
    assert chosen == [3, 3]


@NO_COMPILER
def test_machine_with_a_compiler_can_compile() -> None:
    """The check compiles a small sum before a run begins."""
    check_can_compile(torch.device("cpu"))


def test_machine_without_a_compiler_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the flag, and nothing has been built."""

    def refuse(*args: object, **options: object) -> None:
        raise RuntimeError("no C++ compiler found")

    monkeypatch.setattr("torch.compile", refuse)
    with pytest.raises(ConfigError, match="^compile: expected a compiler .* no C\\+\\+ compiler"):
        check_can_compile(torch.device("cpu"))
