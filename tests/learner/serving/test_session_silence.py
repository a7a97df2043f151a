"""Actors that are silent, do not read, or are stopped: they are dropped, and no other waits."""

import contextlib
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest

from learner.serving.limits import Limits
from learner.serving.session import ConnectedActor, Timeouts
from seed import wire
from seed.errors import WireError
from seed.pb import inference_pb2 as pb
from tests.learner.builders import TIMEOUT_S, in_thread
from tests.learner.serving.support import HELD, INVALID, SPEC, Serving, first, sign, step
from tests.support import quiet_actor

LATE = grpc.StatusCode.DEADLINE_EXCEEDED
HELLO = wire.Hello(run_id="run", role=pb.ROLE_TRAIN, group_sizes=(1, 1), spec=SPEC)

Serve = Callable[[Timeouts], Serving]


@pytest.fixture
def serve(tmp_path: Path, ingress_processes: int) -> Iterator[Serve]:
    """Starts a server with short timeouts."""
    started: list[Serving] = []

    def start(timeouts: Timeouts) -> Serving:
        started.append(
            Serving(
                tmp_path,
                timeouts=timeouts,
                limits=Limits(max_envs=30_000),
                ingress_processes=ingress_processes,
            )
        )
        return started[-1]

    yield start
    for serving in started:
        serving.close()


@contextlib.contextmanager
def served_meanwhile(serving: Serving) -> Iterator[None]:
    """Lets an actor of one environment step all the time; each step must be answered."""
    neighbour, ends = serving.actor(), threading.Event()
    neighbour.start(1)

    def play() -> int:
        steps = 0
        while not ends.is_set():
            assert np.frombuffer(neighbour.act(step(1, value=3)).actions, "<i8").tolist() == [3]
            steps += 1
        return steps

    playing = in_thread(play)
    try:
        yield
    finally:
        ends.set()
    assert playing.result(TIMEOUT_S) > 0
    assert neighbour.act(step(1, value=2)).actions


def test_actor_that_never_says_hello_is_dropped(serve: Serve) -> None:
    """It gets a status to retry on, and no other actor waits for it."""
    serving = serve(Timeouts(hello_s=0.2))
    with served_meanwhile(serving):
        assert serving.actor().status() == (
            LATE,
            "hello: expected one within 0.2 s of the stream's start, got silence",
        )


def test_connection_without_a_word_is_closed(serve: Serve) -> None:
    """The connection is closed before HTTP/2 has begun, while others step."""
    serving = serve(Timeouts(hello_s=0.2))
    address = serving.address.removeprefix("unix:")
    with served_meanwhile(serving), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.connect(address)
        while connection.recv(1024):
            pass


@pytest.mark.parametrize("steps", [0, 2])
def test_actor_that_no_longer_steps_is_dropped(serve: Serve, steps: int) -> None:
    """Others step on and get its slots; it may come back as a new actor."""
    # Long enough for the neighbour to step in time on a machine that is busy.
    serving = serve(Timeouts(step_s=2.0))
    with served_meanwhile(serving):
        actor = serving.actor()
        actor.say_hello(2)
        for _ in range(steps):
            actor.act(first(2))
        code, details = actor.status()
        assert code is LATE
        assert details == (
            "env_outputs: expected a step or a sign of life within 2 s of the last answer "
            "(--actor-timeout-s), got silence. If a step or reset of a whole group takes longer: "
            "fewer --envs-per-group, or processes that share them (--env-workers)"
        )
        assert serving.actor().say_hello(2).envs_connected == 3
        serving.metrics.wait_for_refusal()
        assert serving.metrics.drain()["actors/refused"] == 1


def test_actor_that_gives_signs_of_life_may_take_its_time(serve: Serve) -> None:
    """Its step takes far longer than the limit that the welcome has told; it is answered."""
    serving = serve(Timeouts(step_s=1.0))
    actor = serving.actor()
    assert actor.say_hello(2, 3).silence_limit_s == 1.0
    for _ in range(2):
        actor.act(first(2))
        for _ in range(6):
            assert not actor.ends_within(0.25)
            actor.send(sign(group=1))
    assert actor.act(step(2, value=3)).actions


def test_signs_of_life_count_for_a_while_only() -> None:
    """A stuck environment is noticed even if its actor goes on giving signs."""
    now = [0.0]
    session = ConnectedActor(HELLO, np.arange(2), lambda: now[0], signs_s=100.0)
    for now_s, silent_s in ((60.0, 0), (99.0, 0), (104.0, 4), (130.0, 30)):
        now[0] = now_s
        session.take_sign(sign().sign_of_life)
        assert session.silent_s() == silent_s
    outputs = wire.decode_env_outputs(first(1).env_outputs, HELLO)
    session.make_request(outputs, lambda actions: None)
    now[0] += 90
    session.take_sign(sign().sign_of_life)
    now[0] += 2
    assert session.silent_s() == 2


@pytest.mark.parametrize(
    ("fields", "details"),
    [
        ({"group": 2}, "sign_of_life.group: expected below 2, got 2"),
        ({"envs_ready": 9}, "sign_of_life.envs_ready: expected at most 4, got 9"),
    ],
)
def test_sign_of_life_that_does_not_fit_ends_the_stream(
    serving: Serving, fields: dict[str, int], details: str
) -> None:
    """The status names the field, as for any other message."""
    actor = serving.actor()
    actor.say_hello(1, 3)
    actor.send(sign(**fields))
    assert actor.status() == (INVALID, details)


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"envs_ready": 2}, "2 of 4 environments of the actor at unix: are ready"),
        (
            {"envs_ready": 4, "busy_s": 7},
            "the actor at unix: has been at one step of group 0 for 7 s",
        ),
    ],
)
def test_learner_says_what_its_actors_are_at(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fields: dict[str, int], line: str
) -> None:
    """Its log, and so its view, is not still while environments are made or are slow."""
    caplog.set_level("INFO")
    serving = Serving(tmp_path)
    actor = serving.actor()
    actor.say_hello(4)
    actor.send(sign(**fields))
    actor.act(first(4))
    serving.close()
    assert line in caplog.messages


def test_actor_that_waits_for_the_learner_is_not_silent() -> None:
    """A paused learner owes it answers for any time; its own time begins with the answer."""
    now = [0.0]
    session = ConnectedActor(HELLO, np.arange(2), lambda: now[0])
    for group in range(2):
        now[0] += 1
        assert session.silent_s() == 1
        outputs = wire.decode_env_outputs(first(1, group=group).env_outputs, HELLO)
        session.make_request(outputs, lambda actions: None)
    now[0] += 1_000
    assert session.silent_s() == 0
    session.deliver(1, np.zeros(1, np.int64))
    assert session.silent_s() == 0
    now[0] += 3
    assert session.silent_s() == 3


def test_answers_that_are_not_read_do_not_pile_up() -> None:
    """One answer may wait for each group, beside the welcome; then the stream ends."""
    session = ConnectedActor(HELLO, np.arange(2))
    session.outbox.put_nowait(pb.ActResponse(welcome=pb.Welcome()))
    outputs = wire.decode_env_outputs(first(1).env_outputs, HELLO)
    for _ in range(2):
        session.make_request(outputs, lambda actions: None)
        session.deliver(0, np.zeros(1, np.int64))
    with pytest.raises(WireError, match="^actions: expected those of a group .* got 3 unread"):
        session.make_request(outputs, lambda actions: None)


def test_actor_that_reads_nothing_is_dropped_though_it_takes_no_status(serve: Serve) -> None:
    """The transport holds what it can, then answers pile up, and the status waits to be read."""
    size = 20_000
    serving = serve(Timeouts(goodbye_s=0.2))
    # Every other actor is served by the same process, so that answers keep their order.
    neighbour, _, deaf = (serving.actor() for _ in range(3))
    neighbour.start(1)
    deaf.say_hello(size)
    serving.batcher.wait_for_connected(1 + size)
    while serving.batcher.connected.empty():
        deaf.send(first(size, value=HELD))
        with contextlib.suppress(queue.Empty):
            serving.inference.held.get(timeout=5.0).reply(np.zeros(size, np.int64))
            # It is answered after the deaf actor, whose answer is on its way by now.
            neighbour.act(step(1))
    serving.batcher.wait_for_connected(1)
    code, details = deaf.status()
    assert code is INVALID
    assert details.startswith("actions: expected those of a group to be read before its next")


def test_stopped_process_is_dropped_while_others_go_on(serve: Serve) -> None:
    """Its machine keeps the connection, and its transport gives no sign of life."""
    serving = serve(Timeouts(ping_every_s=0.5, ping_answer_s=0.5))
    neighbour = serving.actor()
    neighbour.start(1)
    process = subprocess.Popen(
        [sys.executable, "-m", quiet_actor.__name__, serving.address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"welcomed to a-run\n"
        process.send_signal(signal.SIGSTOP)
        serving.batcher.wait_for_connected(1 + quiet_actor.NUM_ENVS)
        serving.batcher.wait_for_connected(1)
        assert neighbour.act(step(1, value=3)).actions
    finally:
        process.kill()
        process.communicate()


def test_two_actors_of_the_same_name_are_two_actors(serving: Serving) -> None:
    """A machine may be copied, or an actor may have replaced a connection that it lost."""
    actors = [serving.actor() for _ in range(2)]
    for actor in actors:
        actor.start(2)
    slots = [request.slots.tolist() for request in serving.inference.requests]
    assert slots == [[0, 1], [2, 3]]
    for number, actor in enumerate(actors):
        answer = actor.act(step(2, value=number))
        assert np.frombuffer(answer.actions, "<i8").tolist() == [number] * 2
    # One leaves, and the other keeps its stream and its slots.
    serving.batcher.wait_for_connected(4)
    actors[0].close()
    serving.batcher.wait_for_connected(2)
    answer = actors[1].act(step(2, value=3))
    assert np.frombuffer(answer.actions, "<i8").tolist() == [3, 3]
    assert serving.inference.requests[-1].slots.tolist() == [2, 3]
