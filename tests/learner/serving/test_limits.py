"""The limits of the server: actors beyond them wait, and cost other actors nothing."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest

from learner.serving.limits import Limits, LogLimiter
from seed.errors import LearnerUnavailableError
from seed.grpc_status import error_from_status
from seed.pb import inference_pb2 as pb
from seed.specs import EnvSpec
from tests.learner.builders import TIMEOUT_S
from tests.learner.serving.support import (
    HELD,
    PRECONDITION,
    FakeActor,
    Serving,
    first,
    hello,
    step,
)

LATER = grpc.StatusCode.UNAVAILABLE

Serve = Callable[..., Serving]


@pytest.fixture
def serve(tmp_path: Path, ingress_processes: int) -> Iterator[Serve]:
    """Starts a server with the limits given."""
    started: list[Serving] = []

    def start(limits: Limits, admit: Callable[[EnvSpec], str] | None = None) -> Serving:
        started.append(Serving(tmp_path, admit, limits=limits, ingress_processes=ingress_processes))
        return started[-1]

    yield start
    for serving in started:
        serving.close()


# Counted for each process, and known a moment later where there are several.
in_one_process = pytest.mark.parametrize("ingress_processes", [0], indirect=True)


def assert_steps(actor: FakeActor) -> None:
    """Asserts that an actor with one environment gets its actions."""
    assert np.frombuffer(actor.act(step(1, value=3)).actions, "<i8").tolist() == [3]


def test_actor_beyond_the_environments_served_is_to_come_again(serve: Serve) -> None:
    """Actors retry on this status; its details name the field, the room and the request."""
    serving = serve(Limits(max_envs=4))
    neighbour = serving.actor()
    neighbour.start(1)
    greedy = serving.actor()
    greedy.send(hello(2, 2))
    code, details = greedy.status()
    assert (code, details) == (
        LATER,
        "group_sizes: expected at most the 3 environments left of 4 (max_envs) for now, got 4",
    )
    assert isinstance(error_from_status(code, details), LearnerUnavailableError)
    assert_steps(neighbour)
    assert serving.actor().say_hello(3).envs_connected == 4
    serving.metrics.wait_for_refusal()
    assert serving.metrics.drain()["actors/refused"] == 1


def test_actor_that_can_never_fit_is_refused_for_good(serve: Serve) -> None:
    """Waiting would not help; a hello takes no memory, for any number of environments it names."""
    serving = serve(Limits(max_envs=4))
    neighbour, greedy = serving.actor(), serving.actor()
    neighbour.start(1)
    greedy.send(hello(3, 2))
    wanted = "group_sizes: expected at most 4 environments in all (max_envs), got 5"
    assert greedy.status() == (PRECONDITION, wanted)
    assert_steps(neighbour)


def test_actors_that_only_evaluate_take_room_too(serve: Serve) -> None:
    """Their states are held like those of all others."""
    serving = serve(Limits(max_envs=2))
    serving.actor().say_hello(2, role=pb.ROLE_EVAL)
    actor = serving.actor()
    actor.send(hello(1))
    assert actor.status()[0] is LATER


@in_one_process
def test_room_is_free_once_the_last_answer_is_given(serve: Serve) -> None:
    """Until then the slots of an actor that left are held, and no slot lies beyond the limit."""
    serving = serve(Limits(max_envs=3))
    leaving = serving.actor()
    leaving.start(2)
    leaving.send(step(2, value=HELD))
    held = serving.inference.held.get(timeout=TIMEOUT_S)
    leaving.close()
    serving.batcher.wait_for_connected(0)
    early = serving.actor()
    early.send(hello(2))
    assert early.status()[0] is LATER
    held.reply(np.zeros(2, np.int64))
    late = serving.actor()
    late.start(3)
    assert serving.inference.requests[-1].slots.tolist() == [0, 1, 2]


@in_one_process
def test_streams_beyond_those_that_may_say_nothing_are_to_come_again(serve: Serve) -> None:
    """Actors that were welcomed are not affected, and a place that becomes free is used."""
    serving = serve(Limits(max_pending_streams=2))
    neighbour = serving.actor()
    neighbour.start(1)
    silent = [serving.actor() for _ in range(2)]
    # A stream may arrive late, and others may come in before it.
    assert _first_refusal(serving) == (
        LATER,
        "hello: expected at most 2 streams without a welcome, got one more",
    )
    assert_steps(neighbour)
    silent[0].say_hello(1)
    serving.actor().say_hello(1)


def _first_refusal(serving: Serving) -> tuple[grpc.StatusCode, str]:
    for _ in range(100):
        actor = serving.actor()
        actor.send(hello(1))
        try:
            actor.receive()
        except grpc.RpcError:
            return actor.status()
        actor.close()
    raise AssertionError("nobody was refused")


@in_one_process
def test_streams_that_wait_for_their_welcome_count_as_strangers(serve: Serve) -> None:
    """Building networks takes seconds, and any number of actors could say hello meanwhile."""
    admitting, go_on = threading.Semaphore(0), threading.Event()

    def admit(spec: EnvSpec) -> str:
        admitting.release()
        assert go_on.wait(TIMEOUT_S)
        return "a-run"

    serving = serve(Limits(max_pending_streams=2), admit)
    waiting = [serving.actor() for _ in range(2)]
    for actor in waiting:
        actor.send(hello(1))
        assert admitting.acquire(timeout=TIMEOUT_S)
    late = serving.actor()
    late.send(hello(1))
    assert late.status()[0] is LATER
    go_on.set()
    for actor in waiting:
        actor.receive()
        actor.act(first(1))


def test_log_is_not_filled_by_actors_that_retry() -> None:
    """Refusals write one line in ten seconds."""
    now = [0.0]
    log = LogLimiter(10.0, lambda: now[0])
    told = []
    for now[0] in (0.0, 1.0, 9.9, 10.0, 10.1, 25.0):
        told.append(log.is_due())
    assert told == [True, False, False, True, False, True]
