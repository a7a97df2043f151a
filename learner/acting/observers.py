"""Watchers of steps: a page that shows games, a recorder, a logger.

An observer is called by the inference thread, once for each acted batch, after the answers are
out. While it works the next batch waits, so it should copy what it needs and return. A learner
without observers does nothing for them.
"""

from typing import NamedTuple, Protocol

import numpy as np
from torch import Tensor

from learner.records import Steps


class ObservedStep(NamedTuple):
    """One row of each of N environments, and what was decided at it.

    The tensors are on the learner's device, and valid until `observe` returns.
    """

    slots: np.ndarray
    """int64 [N]: the environments' seats on this learner."""
    is_eval: np.ndarray | None
    """bool [N]: which only evaluate; None for none."""
    steps: Steps
    """[1, N, ...]: observations, rewards, flags, actions, policy outputs, version."""
    values: Tensor | None
    """float32 [N]: estimated return from the row on, from an agent that has one."""


class StepObserver(Protocol):
    """Sees every step. An exception that it raises ends the run, as that of any thread does."""

    def observe(self, step: ObservedStep) -> None:
        """Takes note of one acted batch."""
        ...

    def close(self) -> None:
        """Lets go of what it holds; called once, after the last step."""
        ...
