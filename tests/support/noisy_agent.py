"""An observer and a network that print, by Python and by a system call, as native code does."""

import atexit
import os
from pathlib import Path
from typing import Any

from learner.acting.observers import ObservedStep
from tests.packages.gru_core import GRUCore


class NoisyObserver:
    """Prints for each batch, and when the process ends."""

    def __init__(self, run_dir: Path) -> None:
        del run_dir
        atexit.register(print, "the observer's last words")

    def observe(self, step: ObservedStep) -> None:
        """Prints."""
        del step
        print("the observer has seen a step")

    def close(self) -> None:
        """Prints."""
        print("the observer is closed")


class NoisyCore(GRUCore):
    """A network that prints when it is built."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        print("a network is built")
        os.write(1, b"native code builds a network\n")


print("noisy_agent is imported")
