"""The learner as an ingress process sees it, when actors or the learner end at a bad moment."""

import asyncio
import multiprocessing
import queue
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection

import numpy as np
import pytest

from learner.concurrency.pipe_rpc import Caller, serve_calls
from learner.serving.backend import Seats
from learner.serving.ingress.backend import OrderedCaller, RemoteBackend
from seed import wire
from seed.errors import LearnerUnavailableError
from seed.pb import inference_pb2 as pb
from tests.learner.builders import TIMEOUT_S, env_spec

HELLO = wire.Hello(run_id="run", role=pb.ROLE_TRAIN, group_sizes=(2, 1), spec=env_spec())


class FakeLearner:
    """Answers the calls of a backend once the test allows it, and tells which calls came."""

    def __init__(self) -> None:
        self.calls: queue.Queue[tuple[object, ...]] = queue.Queue()
        self.may_seat = threading.Event()
        self.served, self.calling = multiprocessing.Pipe()
        _, self.admissions = multiprocessing.Pipe()
        _, self.steps = multiprocessing.Pipe(duplex=False)
        self.answers, _ = multiprocessing.Pipe(duplex=False)
        functions = {
            "seat": self._seat,
            "share_memory": lambda *place: None,
            "leave": lambda slot: self.calls.put(("leave", slot)),
            "release": lambda slot: self.calls.put(("release", slot)),
        }
        self._thread = threading.Thread(target=serve_calls, args=(self.served, functions))
        self._thread.start()

    def backend(self) -> RemoteBackend:
        """Returns the backend, for the running event loop."""
        calls = OrderedCaller(self.calling)
        return RemoteBackend(calls, Caller(self.admissions), self.steps, self.answers)

    def close(self) -> None:
        """Closes its end, as a learner that ends does."""
        self.may_seat.set()
        self.calling.close()
        self._thread.join(TIMEOUT_S)

    def _seat(self, *arguments: object) -> Seats:
        self.calls.put(("seat",))
        assert self.may_seat.wait(TIMEOUT_S)
        return Seats(np.arange(4, 7), envs_connected=3)


@pytest.fixture
def learner() -> Iterator[FakeLearner]:
    """A learner that answers no call yet."""
    learner = FakeLearner()
    yield learner
    learner.close()


def test_seat_of_an_actor_that_has_gone_meanwhile_is_given_back(learner: FakeLearner) -> None:
    """The actor ends before or after its seat was given, and only the backend knows of the seat."""

    async def come_and_go() -> None:
        seating = asyncio.create_task(learner.backend().seat(HELLO))
        assert await asyncio.to_thread(learner.calls.get, timeout=TIMEOUT_S) == ("seat",)
        seating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await seating

    asyncio.run(come_and_go())
    learner.may_seat.set()
    assert learner.calls.get(timeout=TIMEOUT_S) == ("leave", 4)
    assert learner.calls.get(timeout=TIMEOUT_S) == ("release", 4)


def test_actors_of_a_learner_that_has_ended_are_to_try_again() -> None:
    """Their process also tells them so in the time before it ends."""

    async def ask(ours: Connection) -> None:
        _, steps = multiprocessing.Pipe(duplex=False)
        answers, _ = multiprocessing.Pipe(duplex=False)
        backend = RemoteBackend(OrderedCaller(ours), Caller(ours), steps, answers)
        for request in (backend.make_task(), backend.admit(HELLO.spec), backend.seat(HELLO)):
            with pytest.raises(LearnerUnavailableError, match="the learner has ended"):
                await request
        backend.leave(np.arange(3))

    ours, theirs = multiprocessing.Pipe()
    theirs.close()
    asyncio.run(ask(ours))
