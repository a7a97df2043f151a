"""The newest batches of unrolls, trained on together. Used by the trainer thread.

With 3 batches kept, every unroll takes part in 3 consecutive updates:

    update       0      1      2      3
    trained on   a      a b    a b c  b c d
"""

from collections import deque

from learner.records import Unrolls, concatenate_unrolls


class RecentBatches:
    """A sliding window over batches; a window of 1 passes each batch on as it is."""

    def __init__(self, num_batches: int) -> None:
        self._batches: deque[Unrolls] = deque(maxlen=num_batches)

    def add(self, fresh: Unrolls) -> Unrolls:
        """Returns the unrolls [T + 1, up to num_batches * B] to train on now."""
        self._batches.append(fresh)
        return concatenate_unrolls(list(self._batches))
