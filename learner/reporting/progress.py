"""How far a run has come, in memory that the learner's processes share.

The inference thread writes this rank's env steps, the trainer writes the rest, and any thread
reads. Each number has one writer, so no lock is needed.
"""

from typing import Any, Self

import torch
from torch import Tensor

from learner.concurrency.shared_tensors import SharedFile, place_of, tensor_at


class Progress:
    """Totals since the start of the run, restarts included."""

    def __init__(self) -> None:
        self._totals = SharedFile().zeros((3,), torch.int64)

    def __reduce__(self) -> tuple[Any, ...]:
        """Passes the memory on, not the counts."""
        return self._attached, (place_of(self._totals) or self._totals,)

    @classmethod
    def _attached(cls, totals: Any) -> Self:
        progress = cls.__new__(cls)
        progress._totals = totals if isinstance(totals, Tensor) else tensor_at(totals)
        return progress

    @property
    def env_steps(self) -> int:
        """Actions applied by training actors, of all ranks."""
        return int(self._totals[:2].sum())

    @property
    def own_env_steps(self) -> int:
        """Actions applied by the training actors that this rank serves."""
        return int(self._totals[0])

    @own_env_steps.setter
    def own_env_steps(self, count: int) -> None:
        self._totals[0] = count

    @property
    def others_env_steps(self) -> int:
        """Actions applied by the other ranks' training actors, as of the latest update."""
        return int(self._totals[1])

    @others_env_steps.setter
    def others_env_steps(self, count: int) -> None:
        self._totals[1] = count

    @property
    def learner_steps(self) -> int:
        """Optimiser updates."""
        return int(self._totals[2])

    @learner_steps.setter
    def learner_steps(self, count: int) -> None:
        self._totals[2] = count
