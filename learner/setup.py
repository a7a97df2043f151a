"""What the learner's commands share: signals, the device, local actors.

Used in the main thread of `seed learner`, `seed train` and `seed eval`.
"""

import os
import signal
from typing import Protocol

import torch

from seed.allocator import keep_freed_memory
from seed.errors import ConfigError, expected


class LocalActors(Protocol):
    """Actor processes that live and die with the learner."""

    address: str
    """Where they expect it."""

    def start(self) -> None:
        """Starts the processes; the learner listens already."""
        ...

    def check(self) -> None:
        """Raises SeedError if one of them cannot go on."""
        ...

    def close(self) -> None:
        """Ends the processes."""
        ...


class StopRequest:
    """Whether SIGTERM or Ctrl-C has come.

    A plain attribute: a handler that took a lock could meet the main thread holding it.
    """

    def __init__(self) -> None:
        self.requested = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._request)

    def _request(self, *_: object) -> None:
        self.requested = True


def set_up_torch(device_name: str, *, torch_threads: int) -> torch.device:
    """Returns the device to use, with torch's threads and the allocator set for it.

    Args:
      device_name: "auto" for CUDA where there is one, or as torch names it.
      torch_threads: threads within one operation on the CPU; 0: half of the cores.

    Raises:
      ConfigError: a device that this machine does not have.
    """
    name = device_name
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(expected("device", "one that this machine has", name)) from error
    keep_freed_memory()
    # One operation on half of the cores: the others infer and step environments.
    torch.set_num_threads(torch_threads or max(1, (os.cpu_count() or 1) // 2))
    return device
