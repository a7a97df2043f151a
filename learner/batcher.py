"""Requests -> one batch. The server thread submits, the inference thread takes.

A batch closes when it is full, when its oldest request has waited long enough, or
when the device is idle (it is, whenever the inference thread asks) and enough of
the connected environments have reported. Who has left is not waited for.
"""

import dataclasses
import math
import threading
import time
from collections import deque
from collections.abc import Callable

import numpy as np

from learner.threads import Stopped
from seed.config import InferenceConfig
from seed.wire import EnvOutputs


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """One group's step, waiting for its actions."""

    outputs: EnvOutputs
    slots: np.ndarray
    """int64 [E]."""
    is_session_start: bool
    """The group's first message: whatever its slots hold is a predecessor's."""
    is_eval: bool
    """Act greedily and store nothing."""
    reply: Callable[[np.ndarray], None]
    """Called once with int64 actions [E], on the inference thread."""
    submitted_at: float
    """Seconds on the batcher's clock."""

    @property
    def num_envs(self) -> int:
        return len(self.slots)


class Batcher:
    """FIFO of requests that gives them out in batches."""

    def __init__(self, config: InferenceConfig, now: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._now = now
        self._pending: deque[Request] = deque()
        self._pending_envs = 0
        self._connected_envs = 0
        self._closed = False
        self._changed = threading.Condition()

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
            self._changed.notify_all()

    def close(self) -> None:
        """Wakes the inference thread for good; pending requests stay unanswered."""
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
        """Returns how long the batch stays open if nothing more comes; inf if empty."""
        if not self._pending:
            return math.inf
        config = self._config
        enough = min(config.max_inference_batch, math.ceil(config.min_fill * self._connected_envs))
        if self._pending_envs >= enough:
            return 0.0
        waited_s = self._now() - self._pending[0].submitted_at
        return config.max_wait_ms / 1000 - waited_s

    def _take(self) -> list[Request]:
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
