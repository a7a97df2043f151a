"""Unrolls trained on as they come (V-trace): a bounded queue and a short memory.

See `learner.experience.base` for the threads that call each method.
"""

from learner.experience.base import Experience, Sample
from learner.experience.recent_batches import RecentBatches
from learner.experience.unroll_queue import UnrollQueue
from learner.records import Batch, Completed


class FreshUnrolls(Experience):
    """Returns unrolls in the order of arrival, each in `sample_reuse` consecutive batches.

    Checkpoints do not hold them: unrolls of older weights are not worth keeping.
    """

    def __init__(self, batch_size: int, *, queue_batches: int, sample_reuse: int) -> None:
        self._batch_size = batch_size
        self._queue = UnrollQueue(queue_batches * batch_size)
        self._recent = RecentBatches(sample_reuse)

    def put(self, completed: Completed) -> None:
        self._queue.put(completed.unrolls)

    def next_batch(self) -> Sample:
        fresh = self._queue.get(self._batch_size)
        return Sample(Batch(self._recent.add(fresh)), newest=fresh)

    def report(self) -> dict[str, float]:
        return {"queue/unrolls": len(self._queue)}

    def close(self) -> None:
        self._queue.close()
