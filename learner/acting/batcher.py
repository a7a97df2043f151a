"""Requests -> one batch. The server thread submits, the inference thread takes.

A batch closes when it is full, when its oldest request has waited long enough, or when the
device is idle and enough environments have reported. (The device is idle whenever the
inference thread asks.) "Enough" is the number that reports, at the present rate, while the
device works on a batch, but at most a share of the connected environments. No request waits
longer than that work takes. So the batcher does not wait for an actor that is slow or dead.
seed_bench/studies/simulate_batching.py compares this rule with others.
"""

import dataclasses
import math
import threading
import time
from collections import deque
from collections.abc import Callable

import numpy as np

from learner.concurrency.stopping import Stopped
from learner.config.run_config import InferenceConfig
from seed.wire import EnvOutputs


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """One group's step, waiting for its actions."""

    outputs: EnvOutputs
    """Its observations may be overwritten as soon as `reply` has been called."""
    slots: np.ndarray
    """int64 [E]."""
    is_session_start: bool
    """The group's first message: the contents of its slots belong to a predecessor."""
    is_eval: bool
    """Act greedily and store nothing."""
    reply: Callable[[np.ndarray], None]
    """Called once with int64 actions [E], on the inference thread."""
    submitted_at: float
    """Seconds on the batcher's clock."""

    @property
    def num_envs(self) -> int:
        return len(self.slots)


# Messages over which the rate of arrivals is taken.
_RATE_WINDOW = 32

# Weight of the newest batch in the running mean of the time per batch.
_NEWEST_WEIGHT = 0.2


class Batcher:
    """FIFO of requests that returns them in batches."""

    def __init__(self, config: InferenceConfig, now: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._now = now
        self._pending: deque[Request] = deque()
        self._pending_envs = 0
        self._connected_envs = 0
        self._closed = False
        self._changed = threading.Condition()
        self._arrivals: deque[tuple[float, int]] = deque(maxlen=_RATE_WINDOW)
        self._taken_at: float | None = None
        # Seconds from the close of one batch to the request for the next, a running mean.
        self._work_s = math.inf

    @property
    def full_size(self) -> int:
        """Environments in the largest batch that can form now."""
        return min(self._config.max_inference_batch, max(self._connected_envs, 1))

    def set_connected(self, num_envs: int) -> None:
        """Tells how many environments may report."""
        with self._changed:
            self._connected_envs = num_envs
            self._changed.notify_all()

    def submit(self, request: Request) -> None:
        """Adds a request to the batch being formed."""
        with self._changed:
            self._pending.append(request)
            self._pending_envs += request.num_envs
            self._arrivals.append((request.submitted_at, request.num_envs))
            self._changed.notify_all()

    def close(self) -> None:
        """Wakes the inference thread and stops it; pending requests stay unanswered."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def next_batch(self) -> list[Request]:
        """Blocks until a batch closes and returns it. Raises Stopped."""
        with self._changed:
            while not self._closed:
                wait_s = self.seconds_to_close()
                if wait_s <= 0:
                    return self._take()
                self._changed.wait(None if math.isinf(wait_s) else wait_s)
            raise Stopped

    def seconds_to_close(self) -> float:
        """Returns how long the batch stays open if no request comes; inf if it is empty.

        Call it when the device is idle: the first call after a batch was taken measures how
        long that batch took.
        """
        self._note_work_done()
        if not self._pending:
            return math.inf
        if self._pending_envs >= self._enough():
            return 0.0
        return self._longest_wait_s() - (self._now() - self._pending[0].submitted_at)

    def _longest_wait_s(self) -> float:
        return min(self._config.max_wait_ms / 1000, self._work_s)

    def _enough(self) -> int:
        """Returns the environments for which an idle device waits."""
        config = self._config
        share = math.ceil(config.min_fill * self._connected_envs)
        return min(config.max_inference_batch, share, self._reporting_during_work())

    def _reporting_during_work(self) -> int:
        """Returns how many report while the device works on a batch; all, until that is known."""
        elapsed_s = self._now() - self._arrivals[0][0]
        if len(self._arrivals) < _RATE_WINDOW or elapsed_s <= 0 or math.isinf(self._work_s):
            return self._connected_envs
        num_envs = sum(num_envs for _, num_envs in self._arrivals)
        return math.ceil(num_envs / elapsed_s * self._work_s)

    def _note_work_done(self) -> None:
        if self._taken_at is None:
            return
        work_s = self._now() - self._taken_at
        self._taken_at = None
        if math.isinf(self._work_s):
            self._work_s = work_s
        self._work_s += _NEWEST_WEIGHT * (work_s - self._work_s)

    def _take(self) -> list[Request]:
        self._taken_at = self._now()
        batch: list[Request] = []
        num_envs = 0
        while self._pending:
            following = num_envs + self._pending[0].num_envs
            if batch and following > self._config.max_inference_batch:
                break
            batch.append(self._pending.popleft())
            num_envs = following
        self._pending_envs -= num_envs
        return batch
