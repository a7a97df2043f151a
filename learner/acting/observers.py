"""Watchers of steps: a page that shows games, a recorder, a logger.

The inference thread calls an observer once for each acted batch, after the answers are sent.
The next batch waits meanwhile, so an observer should copy what it needs and return. A learner
without observers does no work for them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from torch import Tensor

from learner.config.plugins import load
from learner.config.run_config import OBSERVERS
from learner.records import Steps
from seed.errors import ConfigError, expected


class ObservedStep(NamedTuple):
    """One row of each of N environments, and the policy's outputs for it.

    The tensors are on the learner's device, and valid until `observe` returns.
    """

    slots: np.ndarray
    """int64 [N]: the environments' seats on this learner."""
    is_eval: np.ndarray | None
    """bool [N]: environments that only evaluate; None if there are none."""
    steps: Steps
    """[1, N, ...]: observations, rewards, flags, actions, policy outputs, version."""
    values: Tensor | None
    """float32 [N]: estimated return from the row on; None if the agent estimates none."""


class StepObserver(Protocol):
    """Sees every step. An exception that it raises ends the run, as in any thread.

    An observer named by `--observers` is built as `cls(run_dir)` before the first actor connects.
    """

    def observe(self, step: ObservedStep) -> None:
        """Processes one acted batch."""
        ...

    def close(self) -> None:
        """Releases its resources; called once, after the last step."""
        ...


def make_observers(names: Sequence[str], run_dir: Path) -> list[StepObserver]:
    """Returns the observers of a run.

    Args:
      names: as configured.
      run_dir: directory of the run's files, for the files that observers write.

    Raises:
      ConfigError: a name cannot be imported, or its object is no observer.
    """
    return [_make_observer(name, run_dir) for name in names]


def _make_observer(name: str, run_dir: Path) -> StepObserver:
    cls = load(OBSERVERS, name)
    missing = [m for m in ("observe", "close") if not callable(getattr(cls, m, None))]
    if not isinstance(cls, type) or missing:
        wanted = "a class with the methods observe and close"
        raise ConfigError(expected(OBSERVERS.field, wanted, f"{name}, {cls!r}"))
    return cls(run_dir)
