"""Signs of life to the learner while a group takes long to step or to reset.

A thread of its own, beside the loop in the main thread; it also ends an actor whose environment
is stuck. Leaves how long the learner waits to the learner.
"""

import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol, Self

from actors.group import EnvGroup
from seed.errors import expected
from seed.pb import inference_pb2 as pb

# Seconds between two looks at the groups. A look takes microseconds.
_LOOK_EVERY_S = 1.0

# A sign is sent so many times in the learner's limit, so that a late one does no harm.
_SIGNS_PER_LIMIT = 8


class SignTaker(Protocol):
    """The learner's side of a stream, as far as signs of life go."""

    @property
    def silence_limit_s(self) -> float:
        """Seconds of silence that the learner bears; 0 if it takes no signs of life."""
        ...

    def send_sign(self, sign: pb.SignOfLife) -> None:
        """Sends a sign of life; called by another thread than the steps."""
        ...


class LifeSigns:
    """Watches an actor's groups from entry to exit of the context.

    A learner of an older version takes no signs; then the thread only looks for stuck
    environments.
    """

    def __init__(
        self,
        groups: Sequence[EnvGroup],
        stream: SignTaker,
        *,
        env_timeout_s: float,
        end: Callable[[str], None] | None = None,
    ) -> None:
        """Nothing runs yet.

        Args:
          groups: stepped by the thread that makes this object.
          stream: takes the signs.
          env_timeout_s: longest time of a step or reset; then `end` is called.
          end: ends the actor, for the reason given. By default it logs the reason with what the
            stepping thread does, and kills the process.
        """
        self._groups = groups
        self._stream = stream
        self._env_timeout_s = env_timeout_s
        self._end = end or self._kill
        self._stepping_thread = threading.get_ident()
        self._sign_every_s = stream.silence_limit_s / _SIGNS_PER_LIMIT
        self._look_every_s = min(_LOOK_EVERY_S, self._sign_every_s or _LOOK_EVERY_S)
        self._sent_at_s = -float("inf")
        self._sent_ready = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="life-signs", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._look_every_s):
            self.look()

    def look(self) -> None:
        """Sends a sign of life if one is due; ends the actor if a group is stuck."""
        group = max(self._groups, key=lambda group: group.busy_s)
        busy_s, ready = group.busy_s, sum(group.num_ready for group in self._groups)
        if busy_s >= self._env_timeout_s:
            wanted = f"a step or reset within {self._env_timeout_s:g} s (--env-timeout-s)"
            self._end(expected(group.busy_with, wanted, f"none in {busy_s:.0f} s"))
        elif self._sign_every_s and busy_s >= self._look_every_s:
            now_s = time.monotonic()
            if ready != self._sent_ready or now_s - self._sent_at_s >= self._sign_every_s:
                self._sent_at_s, self._sent_ready = now_s, ready
                self._stream.send_sign(
                    pb.SignOfLife(group=group.index, busy_s=busy_s, envs_ready=ready)
                )

    def _kill(self, reason: str) -> None:
        """Ends the process. The stuck thread could not even raise an error.

        By a signal, because `seed train` starts another actor after that; the exit code of an
        error would end the run.
        """
        frame = sys._current_frames().get(self._stepping_thread)
        stack = "".join(traceback.format_stack(frame)) if frame else ""
        logging.error("%s: the actor ends. The environment is here:\n%s", reason, stack)
        os.kill(os.getpid(), signal.SIGABRT)
