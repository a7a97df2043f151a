"""Joins one ingress process to the learner: its actors' slots, their steps and answers.

The thread that answers the process calls `seat`, `share_memory`, `leave` and `release`. The
thread that reads its steps calls `carry`. The inference thread delivers the answers.
"""

import contextlib
import functools
import os
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import NamedTuple

import numpy as np

from learner.acting.batcher import Request
from learner.serving.backend import Seats
from learner.serving.reception import Reception
from seed.specs import EnvSpec
from seed.step_memory import GroupMemory, map_groups, open_file
from seed.step_notices import ANSWERS, STEPS, AnswerNotice, StepNotice


class _SeatedActor:
    """An actor that holds slots."""

    def __init__(self, slots: np.ndarray) -> None:
        self.slots = slots
        self.has_left = False
        self.num_unanswered = 0


class _Group(NamedTuple):
    session: _SeatedActor
    slots: np.ndarray
    is_eval: bool
    memory: GroupMemory


class Link:
    """Seats the actors of one ingress process, and carries their steps to the batcher."""

    def __init__(self, reception: Reception, steps: Connection, answers: Connection) -> None:
        """`steps` and `answers` are the learner's ends of the pipes of notices. They close with
        the last reference to the link, because the last answer may need them."""
        self._reception = reception
        self._steps = steps
        self._answers = answers
        self._sessions: dict[int, _SeatedActor] = {}
        self._groups: dict[int, _Group] = {}
        self._lock = threading.Lock()
        self._is_cut = False

    def seat(self, num_envs: int) -> Seats:
        """Gives an actor slots like `Reception.seat`, with the same errors."""
        seats = self._reception.seat(num_envs)
        self._sessions[int(seats.slots[0])] = _SeatedActor(seats.slots)
        return seats

    def share_memory(
        self, slot: int, spec: EnvSpec, group_sizes: Sequence[int], is_eval: bool, path: str
    ) -> None:
        """Maps the file at `path` for the steps of the actor whose first slot is `slot`. The
        process keeps the file open until this call returns."""
        file = open_file(path)
        try:
            memory = map_groups(file, spec, group_sizes)
        finally:
            os.close(file)
        session = self._sessions[slot]
        bounds = np.cumsum(group_sizes)[:-1]
        for slots, group in zip(np.split(session.slots, bounds), memory, strict=True):
            self._groups[int(slots[0])] = _Group(session, slots, is_eval, group)

    def leave(self, slot: int) -> None:
        """Stops counting the actor whose first slot is `slot` as connected."""
        session = self._sessions[slot]
        session.has_left = True
        self._reception.leave(session.slots)

    def release(self, slot: int) -> None:
        """Frees the slots of an actor that has left and got its last answer."""
        session = self._sessions.pop(slot)
        for member in session.slots.tolist():
            self._groups.pop(member, None)
        self._reception.release(session.slots)

    def carry(self) -> None:
        """Submits steps until the process ends."""
        while notices := STEPS.read(self._steps.fileno()):
            for notice in notices:
                self._submit(StepNotice._make(notice))

    def cut(self) -> None:
        """Ends all sessions. Called once the process has ended and makes no more calls.

        Slots that wait for an answer are released when it comes.
        """
        with self._lock:
            self._is_cut = True
            idle = [x for x in self._sessions.values() if not x.num_unanswered]
        for session in self._sessions.values():
            if not session.has_left:
                self._reception.leave(session.slots)
        for session in idle:
            self._reception.release(session.slots)

    def _submit(self, notice: StepNotice) -> None:
        group = self._groups[notice.group]
        with self._lock:
            group.session.num_unanswered += 1
        self._reception.submit(
            Request(
                outputs=group.memory.read(notice.num_episodes),
                slots=group.slots,
                is_session_start=notice.is_session_start,
                is_eval=group.is_eval,
                reply=functools.partial(self._answer, group),
                submitted_at=notice.submitted_at,
            )
        )

    def _answer(self, group: _Group, actions: np.ndarray) -> None:
        """Called on the inference thread."""
        group.memory.answer(actions)
        session = group.session
        with self._lock:
            session.num_unanswered -= 1
            is_cut, is_idle = self._is_cut, not session.num_unanswered
        if not is_cut:
            with contextlib.suppress(BrokenPipeError):  # the process has just ended
                ANSWERS.write(self._answers.fileno(), [AnswerNotice(int(group.slots[0]))])
        elif is_idle:
            self._reception.release(session.slots)
