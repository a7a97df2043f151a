"""The experience between acting and training: it takes unrolls and returns batches.

`put` is called by the inference thread, `next_batch` and `trained` by the trainer thread,
`restore`, `start` and `close` by the thread that starts and stops the run.
"""

import abc
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from learner.records import Batch, Completed, Unrolls


class Sample(NamedTuple):
    """One batch, and what the golden check and the experience need with it."""

    batch: Batch
    """The batch of one learner step."""
    newest: Unrolls | None = None
    """Unrolls [T' + 1, b] that acting has just completed, if any, for the golden check: the
    present weights may still reproduce their outputs."""
    source: Any = None
    """The experience's own note, by which `trained` recognises the batch."""


class ExperienceContext(NamedTuple):
    """The argument of an agent's `make_experience`."""

    example: Unrolls
    """A row [1, 1, ...] as acting stores it, for names, shapes and dtypes."""
    num_slots: int
    """Environments to expect: those of one actor. There may be more."""
    device: torch.device
    """The device of the batches."""
    rng_seed: int
    """Seed of sampling."""
    on_failure: Callable[[BaseException], None]
    """Called with an error that a thread of the experience raised."""


class Experience(Protocol):
    """Takes the unrolls that acting completes, and returns the batches of training.

    Inherit from it: methods that an experience may leave out have a body here.
    """

    def restore(self, checkpoint: Path) -> None:
        """Restores its part of a checkpoint; called before `start`."""

    def start(self) -> None:
        """Begins to prepare batches."""

    @abc.abstractmethod
    def put(self, completed: Completed) -> None:
        """Takes unrolls; may block, which pauses acting. Raises Stopped."""
        ...

    @abc.abstractmethod
    def next_batch(self) -> Sample:
        """Returns the next batch; blocks until there is one. Raises Stopped."""
        ...

    def trained(self, sample: Sample, priorities: Tensor | None) -> None:
        """Called after an update; `priorities` float32 [B] are those of the loss."""

    def report(self) -> dict[str, float]:
        """Returns its present metrics."""
        return {}

    def checkpoint(self) -> dict[str, Tensor] | None:
        """Returns its part of a checkpoint, or None; called by the trainer thread."""
        return None

    @abc.abstractmethod
    def close(self) -> None:
        """Wakes every thread that waits in `put` or `next_batch`: these raise Stopped."""
        ...
