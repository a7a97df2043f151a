"""What lies between acting and training: where unrolls go, and batches come from.

`put` is called by the inference thread, `next_batch` and `trained` by the trainer
thread, `start` and `close` by whoever starts and stops the run.
"""

from typing import Any, NamedTuple, Protocol

from torch import Tensor

from learner.records import Completed, Unrolls


class Batch(NamedTuple):
    """What one learner step trains on."""

    unrolls: Unrolls
    """[T + 1, B]."""
    newest: Unrolls | None = None
    """Unrolls [T' + 1, b] that have just been acted, if any: those whose outputs the
    present weights may still be able to reproduce."""
    importance_weights: Tensor | None = None
    """float32 [B], where sampling was uneven."""
    source: Any = None
    """Whatever the experience needs to recognise the batch in `trained`."""


class Experience(Protocol):
    """Takes what acting completes, gives what training needs."""

    def start(self) -> None:
        """Begins to prepare batches."""
        ...

    def put(self, completed: Completed) -> None:
        """Takes unrolls; may block, which pauses acting. Raises Stopped."""
        ...

    def next_batch(self) -> Batch:
        """Returns the next batch; blocks until there is one. Raises Stopped."""
        ...

    def trained(self, batch: Batch, priorities: Tensor | None) -> None:
        """Takes note of an update: `priorities` float32 [B] are those of the loss."""
        ...

    def report(self) -> dict[str, float]:
        """Returns metrics of the moment."""
        ...

    def checkpoint(self) -> dict[str, Tensor] | None:
        """Returns what a checkpoint is to hold of it, if anything; for the trainer thread."""
        ...

    def close(self) -> None:
        """Wakes everyone who waits."""
        ...
