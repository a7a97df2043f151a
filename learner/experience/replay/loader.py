"""Batches loaded ahead of the trainer, so that it does not wait for rows to be copied.

One background thread samples, between `start` and `close`; the trainer thread calls `get`.
"""

import threading
from collections import deque
from collections.abc import Callable

import torch

from learner.concurrency.stopping import Stopped
from learner.concurrency.threads import start_thread
from learner.device.uploaders import make_uploader
from learner.experience.replay.replay import Replay, ReplayBatch
from learner.records import tensors_of


class BatchLoader:
    """Keeps up to `depth` sampled batches ready on the device.

    Each is drawn as soon as there is room for it, so its priorities lag by `depth`
    updates. With a depth of 0 nothing is loaded ahead and there is no thread: a batch is
    sampled when it is asked for, which makes training reproducible.
    """

    def __init__(
        self,
        replay: Replay,
        device: torch.device,
        *,
        on_failure: Callable[[BaseException], None],
        depth: int = 2,
    ) -> None:
        """`on_failure` is called on the thread that samples, with the error that it raised."""
        self._replay = replay
        self._on_failure = on_failure
        self._depth = depth
        self._batches: deque[ReplayBatch] = deque()
        self._closed = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._uploader = make_uploader(device)

    def start(self) -> None:
        """Begins to load; a replay that is restored must be restored before."""
        if self._depth:
            self._thread = start_thread("loader", self._run, self._on_failure)

    def get(self) -> ReplayBatch:
        """Returns the batch that was sampled first; blocks for it. Raises Stopped."""
        batch = self._take() if self._depth else self._load()
        self._uploader.claim([batch.importance_weights, *tensors_of(batch.unrolls)])
        return batch

    def close(self) -> None:
        """Closes the replay, in which the thread may wait, and joins the thread."""
        self._replay.close()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _take(self) -> ReplayBatch:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._batches)
            if self._closed:
                raise Stopped
            batch = self._batches.popleft()
            self._changed.notify_all()
        return batch

    def _run(self) -> None:
        try:
            while True:
                self._wait_for_room()
                batch = self._load()
                with self._changed:
                    self._batches.append(batch)
                    self._changed.notify_all()
        except Stopped:
            return

    def _wait_for_room(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._batches) < self._depth)
            if self._closed:
                raise Stopped

    def _load(self) -> ReplayBatch:
        batch = self._replay.sample(pin_memory=self._uploader.needs_pinned_memory)
        unrolls, weights = self._uploader.upload((batch.unrolls, batch.importance_weights))
        return batch._replace(unrolls=unrolls, importance_weights=weights)
