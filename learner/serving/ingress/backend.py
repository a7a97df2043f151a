"""The learner as an ingress process sees it: calls reach its reception, memory its batcher.

All methods run on the server's event loop, which never waits here: other threads make the
calls. One thread makes the quick calls, so these keep their order.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, TypeVar

import numpy as np

from learner.acting.batcher import Request
from learner.concurrency.pipe_rpc import Caller, OtherProcessError
from learner.concurrency.stopping import Stopped
from learner.serving.backend import Seats
from seed import wire
from seed.errors import LearnerUnavailableError
from seed.pb import inference_pb2 as pb
from seed.specs import EnvSpec
from seed.step_memory import GroupMemory, make_file, map_groups, path_of
from seed.step_notices import ANSWERS, STEPS, StepNotice

_LOG = logging.getLogger(__name__)

Result = TypeVar("Result")


class _Seated(NamedTuple):
    """The slots of a new actor, and the memory of its groups."""

    seats: Seats
    groups: dict[int, GroupMemory]
    """The memory of each group, by the group's first slot."""


class OrderedCaller:
    """Calls the learner on a thread of its own, so that its caller does not have to wait."""

    def __init__(self, connection: Connection) -> None:
        self.call = Caller(connection)
        """Makes a call; only for functions passed to `run`."""
        self._thread = ThreadPoolExecutor(1, "calls")

    def run(self, function: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """Runs `function` after all earlier ones have returned."""
        return self._thread.submit(function, *arguments)

    def tell(self, name: str, *arguments: Any) -> None:
        """Calls the learner. Does nothing if it has ended: then this process ends too."""

        def call() -> None:
            try:
                self.call(name, *arguments)
            except Stopped:
                return
            except OtherProcessError:
                _LOG.exception("the learner failed to do this: %s", name)

        self.run(call)


class RemoteBackend:
    """Implements `learner.serving.backend.Backend`. Make it on the event loop."""

    def __init__(
        self, calls: OrderedCaller, admissions: Caller, steps: Connection, answers: Connection
    ) -> None:
        """The learner answers `calls` at once; it may take seconds for `admissions`. `steps` and
        `answers` are this process's ends of the pipes of notices."""
        self._calls = calls
        self._admissions = admissions
        self._steps = steps.fileno()
        self._answers = answers.fileno()
        self._memory: dict[int, GroupMemory] = {}
        self._groups_of: dict[int, list[int]] = {}
        self._replies: dict[int, Callable[[np.ndarray], None]] = {}
        self._unsent: list[StepNotice] = []
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(answers, self._receive)

    async def make_task(self) -> pb.Task:
        """See `Backend`."""
        with _translated():
            call = self._calls.run(self._calls.call, "make_task")
            return pb.Task.FromString(await asyncio.wrap_future(call))

    async def admit(self, spec: EnvSpec) -> str:
        """See `Backend`."""
        with _translated():
            return await asyncio.to_thread(self._admissions, "admit", spec)

    async def seat(self, hello: wire.Hello) -> Seats:
        """See `Backend`; makes the memory through which the actor's steps will go."""
        call = self._calls.run(self._seat, hello)
        with _translated():
            try:
                seats, groups = await asyncio.wrap_future(call)
            except asyncio.CancelledError:
                call.add_done_callback(self._give_back)
                raise
        self._memory |= groups
        self._groups_of[int(seats.slots[0])] = list(groups)
        return seats

    def submit(self, request: Request) -> None:
        """See `Backend`."""
        slot = int(request.slots[0])
        num_episodes = self._memory[slot].write(request.outputs)
        self._replies[slot] = request.reply
        if not self._unsent:
            # Called after the other steps that have arrived are submitted, to send all at once.
            self._loop.call_soon(self._send)
        self._unsent.append(
            StepNotice(slot, num_episodes, request.submitted_at, request.is_session_start)
        )

    def leave(self, slots: np.ndarray) -> None:
        """See `Backend`."""
        self._calls.tell("leave", int(slots[0]))

    def release(self, slots: np.ndarray) -> None:
        """See `Backend`."""
        for slot in self._groups_of.pop(int(slots[0])):
            del self._memory[slot]
        self._calls.tell("release", int(slots[0]))

    def count_refused(self) -> None:
        """See `Backend`."""
        self._calls.tell("count_refused")

    def _seat(self, hello: wire.Hello) -> _Seated:
        """Runs on the thread of `OrderedCaller`."""
        seats: Seats = self._calls.call("seat", sum(hello.group_sizes))
        try:
            memory = self._share_memory(seats, hello)
        except BaseException:
            self._vacate(seats)
            raise
        firsts = seats.slots[np.cumsum([0, *hello.group_sizes[:-1]])]
        return _Seated(seats, dict(zip(firsts.tolist(), memory, strict=True)))

    def _share_memory(self, seats: Seats, hello: wire.Hello) -> list[GroupMemory]:
        sizes, is_eval = hello.group_sizes, hello.role == pb.ROLE_EVAL
        file = make_file(hello.spec, sizes)
        try:
            memory = map_groups(file, hello.spec, sizes)
            place = (int(seats.slots[0]), hello.spec, sizes, is_eval, path_of(file))
            self._calls.call("share_memory", *place)
        finally:
            os.close(file)
        return memory

    def _give_back(self, call: Future[_Seated]) -> None:
        """Takes back the slots of an actor that left before it got them."""
        if not call.cancelled() and call.exception() is None:
            self._vacate(call.result().seats)

    def _vacate(self, seats: Seats) -> None:
        slot = int(seats.slots[0])
        self._calls.tell("leave", slot)
        self._calls.tell("release", slot)

    def _send(self) -> None:
        notices, self._unsent = self._unsent, []
        with contextlib.suppress(BrokenPipeError):
            STEPS.write(self._steps, notices)

    def _receive(self) -> None:
        notices = ANSWERS.read(self._answers)
        if not notices:  # the learner has ended
            self._loop.remove_reader(self._answers)
        for (slot,) in notices:
            self._replies.pop(slot)(self._memory[slot].actions())


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Turns `Stopped`, the end of the learner, into the error that actors know."""
    try:
        yield
    except Stopped as error:
        raise LearnerUnavailableError("the learner has ended") from error
