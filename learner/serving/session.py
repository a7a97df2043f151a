"""One connected actor as the server sees it: its slots, its replies, its silence.

All of it belongs to the server's event loop. `server.py` reads and writes the stream.
"""

import asyncio
import dataclasses
import time
from collections.abc import Callable

import numpy as np

from learner.acting.batcher import Request
from seed import wire
from seed.errors import WireError, expected
from seed.pb import inference_pb2 as pb


@dataclasses.dataclass(frozen=True, kw_only=True)
class Timeouts:
    """How long the server waits for an actor before it drops it, in seconds."""

    hello_s: float = 20.0
    """From the opened connection to the hello."""
    step_s: float = 300.0
    """From an answer to the next step of any group, or sign of life. Environments may be slow."""
    signs_s: float = 3600.0
    """For how long after an answer signs of life take the place of a step. An actor ends by
    itself much earlier (`seed actor --env-timeout-s`)."""
    goodbye_s: float = 5.0
    """For sending the last replies and the status to an actor that may have stopped reading."""
    ping_every_s: float = 30.0
    """Between two pings of the transport."""
    ping_answer_s: float = 10.0
    """For the answer to a ping. A machine that is gone or a process that is stopped gives
    none, and loses its connection."""


class ConnectedActor:
    """The slots, replies and silence of one actor, as long as its stream is open."""

    def __init__(
        self,
        hello: wire.Hello,
        slots: np.ndarray,
        now: Callable[[], float] = time.monotonic,
        *,
        signs_s: float = Timeouts.signs_s,
    ) -> None:
        """`signs_s` is that of the server's `Timeouts`."""
        self.hello = hello
        self.slots = slots
        self.is_open = True
        self.send: Callable[[int, np.ndarray], None] = self._send_by_stream
        """Sends a group's actions to the actor."""
        self.outbox: asyncio.Queue[pb.ActResponse | None] = asyncio.Queue()
        bounds = np.cumsum(hello.group_sizes)[:-1]
        self._slots_of_group = np.split(slots, bounds)
        self._started: set[int] = set()
        self._unanswered: set[int] = set()
        self._now = now
        self._signs_s = signs_s
        self._owes_since_s = now()
        self._sign_at_s = self._owes_since_s

    @property
    def num_envs(self) -> int:
        return len(self.slots)

    @property
    def is_idle(self) -> bool:
        """Whether no request of this session is in flight."""
        return not self._unanswered

    def silent_s(self) -> float:
        """Returns for how long the learner has waited for this actor, in seconds.

        0 while all its groups wait for the learner, which may be paused for a long time. Signs of
        life count for a while only: an environment may be stuck.
        """
        if len(self._unanswered) == len(self._slots_of_group):
            return 0.0
        last_sign_s = min(self._sign_at_s, self._owes_since_s + self._signs_s)
        return self._now() - max(self._owes_since_s, last_sign_s)

    def take_sign(self, sign: pb.SignOfLife) -> None:
        """Notes that the actor is at work. Raises WireError naming a field that does not fit."""
        if sign.group >= len(self._slots_of_group):
            wanted = f"below {len(self._slots_of_group)}"
            raise WireError(expected("sign_of_life.group", wanted, sign.group))
        if sign.envs_ready > self.num_envs:
            wanted = f"at most {self.num_envs}"
            raise WireError(expected("sign_of_life.envs_ready", wanted, sign.envs_ready))
        self._sign_at_s = self._now()

    def make_request(
        self, outputs: wire.EnvOutputs, reply: Callable[[np.ndarray], None]
    ) -> Request:
        """Returns the request for one step of a group.

        Raises:
          WireError: the group has an unanswered message, its first message is not the start
            of an episode, or the actor does not read its answers.
        """
        group = outputs.group
        if group in self._unanswered:
            raise WireError(expected("group", "one without an unanswered message", group))
        # Answers that the stream cannot take yet wait here. An actor that steps a group has read
        # that group's answer, so at most the other groups' answers and the welcome can wait.
        if self.outbox.qsize() > len(self._slots_of_group):
            wanted = "those of a group to be read before its next step"
            raise WireError(expected("actions", wanted, f"{self.outbox.qsize()} unread"))
        is_start = group not in self._started
        if is_start and not outputs.is_first.all():
            raise WireError(
                expected("step_flags", "IS_FIRST everywhere in a group's first message", "less")
            )
        self._started.add(group)
        self._unanswered.add(group)
        self._owes_since_s = self._now()
        return Request(
            outputs=outputs,
            slots=self._slots_of_group[group],
            is_session_start=is_start,
            is_eval=self.hello.role == pb.ROLE_EVAL,
            reply=reply,
            submitted_at=time.monotonic(),
        )

    def deliver(self, group: int, actions: np.ndarray) -> None:
        """Sends the answer to a group's message by the actor's stream or its memory."""
        self._unanswered.discard(group)
        self._owes_since_s = self._now()
        if self.is_open:
            self.send(group, actions)

    def _send_by_stream(self, group: int, actions: np.ndarray) -> None:
        self.outbox.put_nowait(wire.encode_actions(group, actions, self.hello.spec))


class SilenceWatch:
    """Calls `expire` once a session has been silent for too long.

    One timer checks from time to time. A timer for every message would cost too much: there
    are thousands of messages a second.
    """

    def __init__(self, session: ConnectedActor, limit_s: float, expire: Callable[[], None]) -> None:
        self._session = session
        self._limit_s = limit_s
        self._expire = expire
        self._timer = asyncio.get_running_loop().call_later(limit_s, self._look)

    def close(self) -> None:
        """Stops the watch."""
        self._timer.cancel()

    def _look(self) -> None:
        left_s = self._limit_s - self._session.silent_s()
        if left_s <= 0:
            self._expire()
        else:
            self._timer = asyncio.get_running_loop().call_later(left_s, self._look)
