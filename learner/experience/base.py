"""What lies between acting and training: where unrolls go, and batches come from.

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
    """One batch, and what the experience and the golden check want to know beside it."""

    batch: Batch
    """What one learner step trains on."""
    newest: Unrolls | None = None
    """Unrolls [T' + 1, b] that have just been acted, if any: those whose outputs the
    present weights may still be able to reproduce."""
    source: Any = None
    """By this the experience recognises the batch in `trained`."""


class ExperienceContext(NamedTuple):
    """What an agent's `make_experience` is told."""

    example: Unrolls
    """A row [1, 1, ...] as acting stores it, for names, shapes and dtypes."""
    num_slots: int
    """Environments to expect: those of one actor. There may be more."""
    device: torch.device
    """Where batches are wanted."""
    rng_seed: int
    """Of sampling."""
    on_failure: Callable[[BaseException], None]
    """Takes what a thread of the experience raised."""


class Experience(Protocol):
    """Takes the unrolls that acting completes, gives the batches that training needs.

    Inherit from it: methods that an experience may leave out have a body here.
    """

    def restore(self, checkpoint: Path) -> None:
        """Goes on with what a checkpoint holds of it; called before `start`."""

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
        """Takes note of an update: `priorities` float32 [B] are those of the loss."""

    def report(self) -> dict[str, float]:
        """Returns metrics of the moment."""
        return {}

    def checkpoint(self) -> dict[str, Tensor] | None:
        """Returns what a checkpoint is to hold of it, if anything; for the trainer thread."""
        return None

    @abc.abstractmethod
    def close(self) -> None:
        """Wakes every thread that waits in `put` or `next_batch`: these raise Stopped."""
        ...
