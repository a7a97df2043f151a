"""Work that is recorded once and repeated, always on the same memory.

A GPU then starts all kernels at once. Otherwise the host starts one kernel after the
other, which takes longer than a small network's kernels run. Used by the inference
thread.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

import torch

from learner.records import map_tensors

Record = TypeVar("Record")


class Recorder(Protocol):
    """Records functions of no arguments, one after the other on one thread."""

    def record(self, function: Callable[[], Record]) -> Callable[[], Record]:
        """Returns a function that repeats the work of `function`.

        The tensors that `function` reads must keep their memory; each repetition reads their
        present values. All repetitions return the same tensors and overwrite their values.
        """
        ...


class HostRecorder:
    """For a CPU: calls the function again and copies its results into the first tensors."""

    def record(self, function: Callable[[], Record]) -> Callable[[], Record]:
        held = function()

        def repeat() -> Record:
            return map_tensors(lambda kept, made: kept.copy_(made), held, function())

        return repeat


def make_recorder(generator: torch.Generator) -> Recorder:
    """Returns a recorder for the device of `generator`, from which the functions draw."""
    if generator.device.type != "cuda":
        return HostRecorder()
    from learner.device.cuda_recorder import CudaRecorder

    return CudaRecorder(generator)
