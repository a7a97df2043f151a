"""Work that is recorded once and repeated, always on the same memory.

A GPU then starts all of it at once, where the host would otherwise ask for one kernel
after the other, which takes longer than a small network's kernels run. Used by the
inference thread.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

import torch

from learner.records import map_tensors

Record = TypeVar("Record")


class Recorder(Protocol):
    """Records functions of no arguments, one after the other on one thread."""

    def record(self, function: Callable[[], Record]) -> Callable[[], Record]:
        """Returns what does again what `function` does now.

        What `function` reads must stay where it is; each repetition reads what is there by
        then. All of them give the same tensors: what they held before is overwritten.
        """
        ...


class HostRecorder:
    """For a CPU: calls the function anew, and keeps its results where they were."""

    def record(self, function: Callable[[], Record]) -> Callable[[], Record]:
        held = function()

        def repeat() -> Record:
            return map_tensors(lambda kept, made: kept.copy_(made), held, function())

        return repeat


def make_recorder(generator: torch.Generator) -> Recorder:
    """Returns one for the device of `generator`, from which the functions draw."""
    if generator.device.type != "cuda":
        return HostRecorder()
    from learner.device.cuda_recorder import CudaRecorder

    return CudaRecorder(generator)
