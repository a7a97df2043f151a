"""Keeps a set number of samples per insert: the side that is ahead waits.

The inference thread calls `insert`, the thread that loads batches calls `sample`, and the
thread that stops the run calls `close`.
"""

import threading

from learner.concurrency.stopping import Stopped
from learner.reporting.merging import Weighted


class SampleRatio:
    """Counts inserts and samples of sequences, and blocks the side that is ahead.

        earned = samples_per_insert * (inserted - min_size), at least 0
        owed   = earned - sampled

        insert(n)   adds n, then blocks while   owed > max(tolerance, samples_per_insert * n)
        sample(n)   blocks while   owed < 0, or inserted < min_size,   then adds n

    Either side may overshoot by one call of any size: a group of sequences goes in whole, a
    batch comes out whole. So both sides never wait at once: while `sample` waits, nothing is
    owed, and `insert` goes on. Over a run the ratio is exact but for the samples of one
    batch, and of one group beyond the tolerance.

    After a group larger than the tolerance, `insert` waits until no more than that group is
    owed. If it waited for less to be owed, acting would stop for most of the group's training,
    and then training for the next group's acting.
    """

    def __init__(self, samples_per_insert: float, *, min_size: int, tolerance: float) -> None:
        """The first `min_size` inserts earn no samples; `tolerance` is in samples."""
        self._samples_per_insert = samples_per_insert
        self._min_size = min_size
        self._tolerance = tolerance
        self._inserted = 0
        self._sampled = 0
        self._closed = False
        self._changed = threading.Condition()

    def insert(self, count: int) -> None:
        """Counts inserts already made; returns when acting may go on. Raises Stopped."""
        most_owed = max(self._tolerance, self._samples_per_insert * count)
        with self._changed:
            self._inserted += count
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closed or self._owed() <= most_owed)
            self._raise_if_closed()

    def sample(self, count: int) -> None:
        """Returns when `count` samples may be taken, and counts them. Raises Stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._may_sample())
            self._raise_if_closed()
            self._sampled += count
            self._changed.notify_all()

    def close(self) -> None:
        """Wakes all threads that wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def samples_per_insert(self) -> Weighted | None:
        """Returns the ratio so far, weighted by the number of inserts that it counts.

        The first `min_size` inserts do not count. None if there are no others yet.
        """
        with self._changed:
            counted = self._inserted - self._min_size
            return Weighted(self._sampled / counted, counted) if counted > 0 else None

    def state_dict(self) -> dict[str, int | float]:
        """Returns the counts and the settings, for a checkpoint."""
        with self._changed:
            return {"inserted": self._inserted, "sampled": self._sampled, **self._settings()}

    def load_state_dict(self, state: dict[str, int | float], *, num_held: int) -> None:
        """Goes on from what `state_dict` returned.

        If the ratio or `min_size` is another, counting starts again, with the `num_held`
        sequences as the first inserts. With the old counts one side would now wait until the
        other had made up for the whole run.
        """
        with self._changed:
            if {
                name: state.get(name, x) for name, x in self._settings().items()
            } == self._settings():
                self._inserted, self._sampled = int(state["inserted"]), int(state["sampled"])
            else:
                self._inserted, self._sampled = min(num_held, self._min_size), 0
            self._changed.notify_all()

    def _settings(self) -> dict[str, int | float]:
        return {"samples_per_insert": self._samples_per_insert, "min_size": self._min_size}

    def _owed(self) -> float:
        earned = self._samples_per_insert * max(self._inserted - self._min_size, 0)
        return earned - self._sampled

    def _may_sample(self) -> bool:
        return self._inserted >= self._min_size and self._owed() >= 0

    def _raise_if_closed(self) -> None:
        if self._closed:
            raise Stopped
