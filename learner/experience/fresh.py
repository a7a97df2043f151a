"""Unrolls trained on as they come (V-trace): a bounded queue and a short memory.

See `learner.experience.base.Experience` for who calls what.
"""

from torch import Tensor

from learner.experience.base import Batch
from learner.experience.recent_batches import RecentBatches
from learner.experience.unroll_queue import UnrollQueue
from learner.records import Completed


class FreshUnrolls:
    """In the order of arrival, each in `sample_reuse` consecutive batches (V-trace)."""

    def __init__(self, batch_size: int, *, queue_batches: int, sample_reuse: int) -> None:
        self._batch_size = batch_size
        self._queue = UnrollQueue(queue_batches * batch_size)
        self._recent = RecentBatches(sample_reuse)

    def start(self) -> None:
        """There is nothing to prepare."""

    def put(self, completed: Completed) -> None:
        self._queue.put(completed.unrolls)

    def next_batch(self) -> Batch:
        fresh = self._queue.get(self._batch_size)
        return Batch(self._recent.add(fresh), newest=fresh)

    def trained(self, batch: Batch, priorities: Tensor | None) -> None:
        """Nothing is done twice on account of an update."""

    def report(self) -> dict[str, float]:
        return {"queue/unrolls": len(self._queue)}

    def checkpoint(self) -> None:
        """Unrolls of weights before the checkpoint's are not worth keeping."""

    def close(self) -> None:
        self._queue.close()
