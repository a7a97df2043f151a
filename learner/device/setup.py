"""The device that a learner process uses, and torch's threads on it.

Called by the main thread of each process that computes, before anything is built.
"""

import contextlib

import torch

from learner.config.torchrun import Place
from seed.allocator import keep_freed_memory
from seed.cores import usable_cores
from seed.errors import ConfigError, expected


def uses_trainer_process(device: torch.device, wanted: str) -> bool:
    """Tells whether training gets a process of its own; `wanted` as configured.

    Raises:
      ConfigError: one is wanted on a GPU, which two processes would use in turns.
    """
    is_cpu = device.type == "cpu"
    if wanted == "process" and not is_cpu:
        raise ConfigError(expected("train_in", f"auto or thread on {device}", wanted))
    return is_cpu and wanted != "thread"


# With more threads the parts of a batch are too small to keep a thread busy.
MAX_TRAIN_THREADS = 4


def num_train_threads(device: torch.device, wanted: int) -> int:
    """Returns how many threads share an update; `wanted` 0 means the default."""
    if device.type != "cpu":
        return 1
    return wanted or max(1, min(usable_cores() // 2, MAX_TRAIN_THREADS))


def device_of(place: Place, wanted: str) -> str:
    """Returns the device of a learner: several learners on a machine take one GPU each."""
    if place.size > 1 and wanted in ("auto", "cuda") and torch.cuda.is_available():
        return f"cuda:{place.local_rank}"
    return wanted


def choose_device(name: str) -> torch.device:
    """Returns the device that `name` means: "auto" for CUDA where there is one.

    Raises:
      ConfigError: a device that this machine does not have.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(expected("device", "one that this machine has", name)) from error
    return device


def set_up_torch(device_name: str, *, torch_threads: int, train_threads: int = 1) -> torch.device:
    """Returns the device to use, with torch's threads and the allocator set for it.

    Args:
      device_name: "auto" for CUDA where there is one, or as torch names it.
      torch_threads: threads within one operation on the CPU; 0: as many as leave half
        of the cores to others.
      train_threads: threads that train side by side, as configured.

    Raises:
      ConfigError: a device that this machine does not have.
    """
    device = choose_device(device_name)
    keep_freed_memory()
    share = 2 * num_train_threads(device, train_threads)
    torch.set_num_threads(torch_threads or max(1, usable_cores() // share))
    with contextlib.suppress(RuntimeError):  # torch allows this once a process
        torch.set_num_interop_threads(usable_cores())
    return device


def check_can_compile(device: torch.device) -> None:
    """Tries torch.compile on a small sum.

    Raises:
      ConfigError: torch.compile does not work on this machine.
    """
    try:
        torch.compile(_plus_one, fullgraph=True)(torch.zeros(2, device=device))
    except Exception as error:  # its class depends on what is missing
        wanted = f"a compiler that torch.compile can use on {device}"
        raise ConfigError(
            expected("compile", wanted, f"{type(error).__name__}: {error}")
        ) from error


def _plus_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1
