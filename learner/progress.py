"""How far a run has come, in memory that the learner's processes share.

Env steps are written by the inference thread, learner steps by the trainer; anyone
reads. One writer each, so there is nothing to lock.
"""

import torch


class Progress:
    """Two totals since the start of the run, restarts included."""

    def __init__(self) -> None:
        self._totals = torch.zeros(2, dtype=torch.int64).share_memory_()

    @property
    def env_steps(self) -> int:
        """Actions applied by training actors."""
        return int(self._totals[0])

    @env_steps.setter
    def env_steps(self, count: int) -> None:
        self._totals[0] = count

    @property
    def learner_steps(self) -> int:
        """Optimiser updates."""
        return int(self._totals[1])

    @learner_steps.setter
    def learner_steps(self, count: int) -> None:
        self._totals[1] = count
