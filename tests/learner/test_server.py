"""The server over real gRPC: what it accepts, what it refuses, and whom that costs."""

import dataclasses
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import grpc
import numpy as np
import pytest
import torch
from grpc_health.v1 import health_pb2, health_pb2_grpc

from learner.agents.base import Agent
from learner.agents.registry import make_agent
from learner.batcher import Batcher, BatcherClosed, Request
from learner.metrics import Metrics
from learner.runtime import Learner
from learner.server import (
    InferenceService,
    ServerThread,
    check_listen_addresses,
    check_same_environment,
)
from learner.threads import start_thread
from seed import wire
from seed.config import ActorConfig, EnvConfig, InferenceConfig, RunConfig
from seed.config_file import env_settings_from_json
from seed.errors import (
    ConfigError,
    IncompatibleError,
    LearnerUnavailableError,
    error_from_status,
)
from seed.pb import inference_pb2 as pb
from seed.pb import inference_pb2_grpc as pb_grpc
from seed.specs import EnvSpec
from tests.learner.builders import SPEED, TIMEOUT_S, env_outputs, env_spec, in_thread

SPEC = env_spec()
OTHER_SPEC = env_spec(SPEED)

# A step with this reward is not answered until the test says so.
HELD = -1.0


class FakeInference:
    """Answers every request with its rewards as actions, at once or when told to."""

    def __init__(self, batcher: Batcher) -> None:
        self.requests: list[Request] = []
        self.held: queue.Queue[Request] = queue.Queue()
        self._batcher = batcher

    def run(self) -> None:
        """Runs until the batcher closes."""
        try:
            while True:
                for request in self._batcher.next_batch():
                    self.requests.append(request)
                    if (request.outputs.rewards == HELD).all():
                        self.held.put(request)
                    else:
                        request.reply(request.outputs.rewards.astype(np.int64))
        except BatcherClosed:
            return


class WatchedBatcher(Batcher):
    """Tells whenever an actor came or went."""

    def __init__(self) -> None:
        super().__init__(InferenceConfig(min_fill=0))
        self.connected: queue.Queue[int] = queue.Queue()

    def set_connected(self, num_envs: int) -> None:
        super().set_connected(num_envs)
        self.connected.put(num_envs)

    def wait_for_connected(self, num_envs: int) -> None:
        """Returns once that many environments are connected."""
        while self.connected.get(timeout=TIMEOUT_S) != num_envs:
            pass


class FakeActor:
    """The actor's end of one stream, message by message."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(
            address, options=[("grpc.use_local_subchannel_pool", 1)]
        )
        self._outgoing: queue.Queue[pb.ActRequest | None] = queue.Queue()
        self.stub = pb_grpc.InferenceStub(self._channel)
        self._stream = self.stub.Act(iter(self._outgoing.get, None), timeout=TIMEOUT_S)

    def send(self, message: pb.ActRequest) -> None:
        """Sends a message, whether it makes sense or not."""
        self._outgoing.put(message)

    def say_hello(self, *group_sizes: int, role: pb.Role = pb.ROLE_TRAIN) -> pb.Welcome:
        """Introduces itself; returns the welcome."""
        self.send(hello(*group_sizes, role=role))
        return self.receive().welcome

    def start(self, *group_sizes: int) -> None:
        """Says hello, and sends the first step of every group."""
        self.say_hello(*group_sizes)
        for group, size in enumerate(group_sizes):
            self.act(first(size, group=group))

    def act(self, message: pb.ActRequest) -> pb.Actions:
        """Sends a step; returns its actions."""
        self.send(message)
        return self.receive().actions

    def receive(self) -> pb.ActResponse:
        """Returns the next message; raises as gRPC does."""
        return next(self._stream)

    def finish_sending(self) -> None:
        """Ends its side of the stream."""
        self._outgoing.put(None)

    def status(self) -> tuple[grpc.StatusCode, str]:
        """Reads to the end of the stream; returns its status and details."""
        try:
            for _ in self._stream:
                pass
        except grpc.RpcError:
            pass
        return self._stream.code(), self._stream.details()

    def close(self) -> None:
        """Goes away without a word."""
        self._stream.cancel()
        self._outgoing.put(None)
        self._channel.close()


def hello(*group_sizes: int, role: pb.Role = pb.ROLE_TRAIN, spec: EnvSpec = SPEC) -> pb.ActRequest:
    """Returns an actor's introduction."""
    return wire.encode_hello(
        wire.Hello(run_id="run", role=role, group_sizes=group_sizes, spec=spec)
    )


def step(num_envs: int, *, group: int = 0, value: float = 0.0) -> pb.ActRequest:
    """Returns a step that followed from an action."""
    return wire.encode_env_outputs(env_outputs(num_envs, group=group, value=value), SPEC)


def first(num_envs: int, *, group: int = 0, value: float = 0.0) -> pb.ActRequest:
    """Returns a step that starts every episode of the group."""
    message = step(num_envs, group=group, value=value)
    message.env_outputs.step_flags = bytes([pb.STEP_FLAG_IS_FIRST] * num_envs)
    return message


class Serving:
    """A server with a fake inference thread behind it."""

    def __init__(self, directory: Path, admit: Callable[[EnvSpec], str] | None = None) -> None:
        self.address = f"unix:{directory / 'learner.sock'}"
        self.batcher = WatchedBatcher()
        self.metrics = Metrics()
        self.inference = FakeInference(self.batcher)
        self.failures: list[BaseException] = []
        self._admit = admit or self._check_spec
        self._actors: list[FakeActor] = []
        self._server = ServerThread(self._make_service, [self.address], self.failures.append)
        self._server.start()
        self._thread = start_thread("inference", self.inference.run, self.failures.append)

    def actor(self) -> FakeActor:
        """Returns an actor that has not said anything yet."""
        actor = FakeActor(self.address)
        self._actors.append(actor)
        return actor

    def stop_server(self) -> None:
        """Ends every stream."""
        self._server.close()

    def close(self) -> None:
        """Ends everything; what failed on the way fails the test."""
        for actor in self._actors:
            actor.close()
        self._server.close()
        self.batcher.close()
        self._thread.join(TIMEOUT_S)
        assert self.failures == []

    def _make_service(self) -> InferenceService:
        return InferenceService(
            make_task=lambda: pb.Task(env_id="CartPole-v1"),
            admit=self._admit,
            batcher=self.batcher,
            metrics=self.metrics,
        )

    def _check_spec(self, spec: EnvSpec) -> str:
        check_same_environment(SPEC, spec)
        return "a-run"


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """A server of `SPEC`."""
    serving = Serving(tmp_path)
    yield serving
    serving.close()


def test_actor_is_welcomed(serving: Serving) -> None:
    """With the run's name, and the environments connected by then, its own included."""
    assert serving.actor().say_hello(2, 3) == pb.Welcome(run_name="a-run", envs_connected=5)
    assert serving.actor().say_hello(4).envs_connected == 9


def test_every_step_is_answered_with_its_actions(serving: Serving) -> None:
    """Encoded as the spec says, under the group's number."""
    actor = serving.actor()
    actor.start(2, 3)
    actions = actor.act(step(3, group=1, value=2))
    assert actions.group == 1
    assert np.frombuffer(actions.actions, "<i8").tolist() == [2, 2, 2]


def test_request_carries_the_step_as_sent(serving: Serving) -> None:
    """Observations, rewards, flags and games, to the slots of the group."""
    actor = serving.actor()
    actor.start(2, 3)
    outputs = env_outputs(3, group=1, value=0.0)
    outputs.observations[0][:] = np.arange(9).reshape(3, 3)
    outputs.terminated[1], outputs.truncated[2] = True, True
    games = [wire.Episode(env=1, episode_return=4.5, length=7)]
    outputs = dataclasses.replace(outputs, episodes=games)
    actor.act(wire.encode_env_outputs(outputs, SPEC))
    request = serving.inference.requests[-1]
    assert request.slots.tolist() == [2, 3, 4]
    assert np.array_equal(request.outputs.observations[0], outputs.observations[0])
    assert request.outputs.terminated.tolist() == [False, True, False]
    assert request.outputs.truncated.tolist() == [False, False, True]
    assert not request.outputs.is_first.any()
    assert request.outputs.episodes == games


def test_only_the_first_message_of_a_group_starts_its_session(serving: Serving) -> None:
    """There the stores drop what a predecessor left; later episode starts must not."""
    actor = serving.actor()
    actor.say_hello(1, 1)
    for message in (first(1), first(1, group=1), step(1), first(1), step(1, group=1)):
        actor.act(message)
    starts = [request.is_session_start for request in serving.inference.requests]
    assert starts == [True, True, False, False, False]


@pytest.mark.parametrize(("role", "is_eval"), [(pb.ROLE_TRAIN, False), (pb.ROLE_EVAL, True)])
def test_role_decides_who_acts_greedily(serving: Serving, role: pb.Role, is_eval: bool) -> None:
    """As the actor's hello said."""
    actor = serving.actor()
    actor.say_hello(1, role=role)
    actor.act(first(1))
    assert serving.inference.requests[-1].is_eval is is_eval


def test_replies_come_in_the_order_of_the_answers(serving: Serving) -> None:
    """A group is not held up by another; each reply says whose it is."""
    actor = serving.actor()
    actor.start(1, 2)
    actor.send(step(1, group=0, value=HELD))
    held = serving.inference.held.get(timeout=TIMEOUT_S)
    assert actor.act(step(2, group=1, value=3)).group == 1
    held.reply(np.array([2]))
    late = actor.receive().actions
    assert (late.group, late.actions) == (0, np.array([2], "<i8").tobytes())


class Violation(NamedTuple):
    """Messages of which the last one ends the stream."""

    messages: list[pb.ActRequest]
    code: grpc.StatusCode
    details: str
    """Beginning of the status details: the field."""


def changed(message: pb.ActRequest, **fields: object) -> pb.ActRequest:
    """Returns a copy of a message with some fields of its payload replaced."""
    copy = pb.ActRequest()
    copy.CopyFrom(message)
    payload = getattr(copy, message.WhichOneof("payload") or "")
    for name, value in fields.items():
        if isinstance(value, list):
            del getattr(payload, name)[:]
            getattr(payload, name).extend(value)
        else:
            setattr(payload, name, value)
    return copy


INVALID = grpc.StatusCode.INVALID_ARGUMENT
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION

VIOLATIONS = {
    "protocol_version": Violation(
        [changed(hello(2), protocol_version=2)],
        PRECONDITION,
        "protocol_version: expected 1, got 2",
    ),
    "no_hello": Violation([first(2)], INVALID, "payload: expected hello"),
    "empty_message": Violation([pb.ActRequest()], INVALID, "payload: expected hello"),
    "hello_twice": Violation([hello(2), hello(2)], INVALID, "payload: expected env_outputs"),
    "empty_step": Violation([hello(2), pb.ActRequest()], INVALID, "payload: expected env_outputs"),
    "other_spec": Violation(
        [hello(2, spec=OTHER_SPEC)], PRECONDITION, "this run's observations: expected leaves"
    ),
    "no_group": Violation([changed(hello(2), group_sizes=[])], INVALID, "group_sizes: expected"),
    "empty_group": Violation([hello(2, 0)], INVALID, "group_sizes: expected"),
    "no_run_id": Violation([changed(hello(2), run_id="")], INVALID, "run_id: expected"),
    "unknown_role": Violation([changed(hello(2), role=7)], INVALID, "role: expected"),
    "unknown_group": Violation([hello(2), first(2, group=1)], INVALID, "group: expected below 1"),
    "missing_leaf": Violation(
        [hello(2), changed(first(2), observations=[])], INVALID, "observations: expected 1 leaves"
    ),
    "short_observation": Violation(
        [hello(2), changed(first(2), observations=[bytes(20)])],
        INVALID,
        "observations['observation']: expected 24 bytes for float32 [2, 3], got 20 bytes",
    ),
    "long_rewards": Violation(
        [hello(2), changed(first(2), rewards=bytes(12))],
        INVALID,
        "rewards: expected 8 bytes for float32 [2], got 12 bytes",
    ),
    "short_flags": Violation(
        [hello(2), changed(first(2), step_flags=b"\1")], INVALID, "step_flags: expected 2 bytes"
    ),
    "unknown_flag": Violation(
        [hello(2), changed(first(2), step_flags=b"\1\11")], INVALID, "step_flags: expected sums"
    ),
    "nan_reward": Violation(
        [hello(2), changed(first(2), rewards=np.array([0, np.nan], "<f4").tobytes())],
        INVALID,
        "rewards: expected finite values, got nan",
    ),
    "first_is_no_start": Violation(
        [hello(2), changed(first(2), step_flags=b"\1\0")],
        INVALID,
        "step_flags: expected IS_FIRST everywhere",
    ),
    "unanswered_group": Violation(
        [hello(2), first(2, value=HELD), step(2)],
        INVALID,
        "group: expected one without an unanswered message, got 0",
    ),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_bad_message_costs_its_sender_the_stream_and_nobody_else(
    serving: Serving, name: str
) -> None:
    """The status names the field; an actor beside it goes on, and its slots serve others."""
    violation = VIOLATIONS[name]
    neighbour, actor = serving.actor(), serving.actor()
    neighbour.start(1)
    for message in violation.messages:
        actor.send(message)
    code, details = actor.status()
    assert (code, details[: len(violation.details)]) == (violation.code, violation.details)
    assert np.frombuffer(neighbour.act(step(1, value=3)).actions, "<i8").tolist() == [3]
    assert serving.actor().say_hello(2).envs_connected == 3


def test_stream_that_says_nothing_is_refused(serving: Serving) -> None:
    """A hello was expected at the least."""
    actor = serving.actor()
    actor.finish_sending()
    code, details = actor.status()
    assert code is INVALID
    assert details == "payload: expected hello as the first message, got the end of the stream"


def test_actor_may_end_its_stream_in_peace(serving: Serving) -> None:
    """Status OK; then it is no longer counted."""
    actor = serving.actor()
    actor.start(2)
    actor.finish_sending()
    assert actor.status()[0] is grpc.StatusCode.OK
    serving.batcher.wait_for_connected(0)
    assert serving.metrics.drain()["envs/connected"] == 0


def test_slots_are_released_after_the_last_reply_only(serving: Serving) -> None:
    """Until then the inference thread may still write what they hold; then they are reused."""
    leaving = serving.actor()
    leaving.start(2)
    leaving.send(step(2, value=HELD))
    held = serving.inference.held.get(timeout=TIMEOUT_S)
    leaving.close()
    serving.batcher.wait_for_connected(0)

    def slots_of_a_new_actor(size: int) -> list[int]:
        actor = serving.actor()
        actor.start(size)
        return serving.inference.requests[-1].slots.tolist()

    assert held.slots.tolist() == [0, 1]
    assert slots_of_a_new_actor(2) == [2, 3]
    held.reply(np.array([0, 0]))
    assert slots_of_a_new_actor(3) == [0, 1, 4]


def test_slots_of_an_idle_actor_are_reused_when_it_leaves(serving: Serving) -> None:
    """Its successor starts a session of its own on them."""
    leaving = serving.actor()
    leaving.start(2)
    leaving.close()
    serving.batcher.wait_for_connected(0)
    serving.actor().start(2)
    request = serving.inference.requests[-1]
    assert request.slots.tolist() == [0, 1]
    assert request.is_session_start


def test_connected_environments_are_counted(serving: Serving) -> None:
    """For the batcher, which waits for a share of them, and for the reports."""
    actors = [serving.actor() for _ in range(2)]
    actors[0].say_hello(2, 2)
    serving.batcher.wait_for_connected(4)
    actors[1].say_hello(3)
    serving.batcher.wait_for_connected(7)
    actors[0].close()
    serving.batcher.wait_for_connected(3)
    report = serving.metrics.drain()
    assert (report["actors/connected"], report["envs/connected"]) == (1, 3)


def test_shutdown_ends_streams_with_a_status_to_retry_on(serving: Serving) -> None:
    """Whether an actor waits for its actions or is stepping."""
    waiting, stepping = serving.actor(), serving.actor()
    waiting.start(1)
    stepping.start(1)
    waiting.send(step(1, value=HELD))
    held = serving.inference.held.get(timeout=TIMEOUT_S)
    serving.stop_server()
    for actor in (waiting, stepping):
        assert isinstance(error_from_status(*actor.status()), LearnerUnavailableError)
    # The inference thread was in the middle of a batch: its answer goes nowhere.
    held.reply(np.array([0]))


def test_connecting_to_a_stopped_server_is_to_be_retried(serving: Serving) -> None:
    """A learner may be restarting."""
    serving.stop_server()
    actor = serving.actor()
    actor.send(hello(1))
    assert isinstance(error_from_status(*actor.status()), LearnerUnavailableError)


def test_actor_that_leaves_during_admission_is_forgotten(tmp_path: Path) -> None:
    """The networks take seconds to build; nobody may be left in their slots."""
    admitting, go_on = threading.Semaphore(0), threading.Event()

    def admit(spec: EnvSpec) -> str:
        admitting.release()
        assert go_on.wait(TIMEOUT_S)
        return "a-run"

    serving = Serving(tmp_path, admit)
    leaving, staying = serving.actor(), serving.actor()
    leaving.send(hello(5))
    assert admitting.acquire(timeout=TIMEOUT_S)
    leaving.close()
    staying.send(hello(2))
    assert admitting.acquire(timeout=TIMEOUT_S)
    go_on.set()
    assert staying.receive().welcome.envs_connected == 2
    staying.act(first(2))
    assert serving.inference.requests[-1].slots.tolist() == [0, 1]
    serving.close()


def test_steps_of_others_are_served_during_an_admission(tmp_path: Path) -> None:
    """Building networks must not stop the event loop."""
    admitting, go_on = threading.Event(), threading.Event()
    calls = []

    def admit(spec: EnvSpec) -> str:
        calls.append(spec)
        if len(calls) > 1:
            admitting.set()
            assert go_on.wait(TIMEOUT_S)
        return "a-run"

    serving = Serving(tmp_path, admit)
    neighbour, late = serving.actor(), serving.actor()
    neighbour.start(1)
    late.send(hello(1))
    assert admitting.wait(TIMEOUT_S)
    assert neighbour.act(step(1, value=2)).actions
    go_on.set()
    assert late.receive().welcome.envs_connected == 2
    serving.close()


def test_many_actors_at_once_get_their_own_answers(serving: Serving) -> None:
    """Ten streams with two groups each, fifty steps."""

    def play(number: int) -> None:
        actor = serving.actor()
        actor.start(1, 2)
        for _ in range(25):
            for group, size in enumerate((1, 2)):
                actor.send(step(size, group=group, value=number))
            answers = {a.group: a.actions for a in (actor.receive().actions for _ in range(2))}
            for group, size in enumerate((1, 2)):
                assert np.frombuffer(answers[group], "<i8").tolist() == [number] * size

    for playing in [in_thread(play, number) for number in range(10)]:
        playing.result(TIMEOUT_S)


def test_health_check_says_serving(serving: Serving) -> None:
    """To the standard client, which container platforms have."""
    with grpc.insecure_channel(serving.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = stub.Check(  # pyright: ignore[reportAttributeAccessIssue]
            health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S
        )
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


@pytest.fixture
def learner(tmp_path: Path) -> Iterator[tuple[Learner, str]]:
    """A real learner to which no actor has come yet, and its address."""
    config = RunConfig(
        env=EnvConfig(env_id="CartPole-v1", env_kwargs='{"sutton_barto_reward": true}'),
        actor=ActorConfig(envs_per_group=3, num_groups=4),
    )
    learner = Learner(config, run_dir=tmp_path / "a-run", device=torch.device("cpu"))
    (address,) = learner.start((f"unix:{tmp_path / 'learner.sock'}",))
    yield learner, address
    learner.close()
    assert learner.failure is None


def test_task_tells_an_actor_all_it_needs(learner: tuple[Learner, str]) -> None:
    """Environment, settings and group sizes; seeds differ from actor to actor."""
    served, address = learner
    actors = [FakeActor(address) for _ in range(3)]
    request = pb.GetTaskRequest(protocol_version=1)
    tasks = [actor.stub.GetTask(request, timeout=TIMEOUT_S) for actor in actors]
    task = tasks[0]
    assert (task.protocol_version, task.env_id) == (1, "CartPole-v1")
    assert (task.envs_per_group, task.num_groups) == (3, 4)
    assert env_settings_from_json(task.env_settings_json) == served.config.env
    assert len({each.base_seed for each in tasks}) == 3
    for actor in actors:
        actor.close()


def test_task_is_refused_to_another_version(learner: tuple[Learner, str]) -> None:
    """Before the actor has made a single environment."""
    actor = FakeActor(learner[1])
    with pytest.raises(grpc.RpcError) as caught:
        actor.stub.GetTask(pb.GetTaskRequest(protocol_version=9), timeout=TIMEOUT_S)
    actor.close()
    assert caught.value.code() is PRECONDITION
    assert caught.value.details() == "protocol_version: expected 1, got 9"


def test_learner_refuses_what_differs_from_its_first_actor(learner: tuple[Learner, str]) -> None:
    """It built its networks for that one; an impossible spec does not count as the first."""
    _, address = learner
    impossible, fitting, other = (FakeActor(address) for _ in range(3))
    spec = env_spec(num_actions=4)
    message = hello(1, spec=spec)
    message.hello.spec.action.num_values = 0
    impossible.send(message)
    assert impossible.status() == (INVALID, "action: expected a discrete space, got int64 array")
    fitting.send(hello(1, spec=spec))
    assert fitting.receive().welcome.run_name == "a-run"
    other.send(hello(1, spec=env_spec(num_actions=5)))
    code, details = other.status()
    assert code is PRECONDITION
    assert details == "this run's action.num_values: expected 4, got 5"
    for actor in (impossible, fitting, other):
        actor.close()


class WatchedLock:
    """A lock that tells how many have asked for it."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self.asked.release()
        self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self._lock.release()


def test_networks_are_built_once_though_their_first_actor_leaves(
    learner: tuple[Learner, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream is gone, the thread that builds them is not: the next actor waits for it."""
    served, address = learner
    building, go_on = threading.Event(), threading.Event()
    built: list[EnvSpec] = []

    def make_agent_slowly(spec: EnvSpec, config: RunConfig) -> Agent:
        built.append(spec)
        building.set()
        assert go_on.wait(TIMEOUT_S)
        return make_agent(spec, config)

    monkeypatch.setattr("learner.runtime.make_agent", make_agent_slowly)
    monkeypatch.setattr(served, "_admission", lock := WatchedLock())
    leaving, staying = FakeActor(address), FakeActor(address)
    leaving.send(hello(3))
    assert building.wait(TIMEOUT_S)
    leaving.close()
    staying.send(hello(2))
    for _ in range(2):
        assert lock.asked.acquire(timeout=TIMEOUT_S)
    go_on.set()
    assert staying.receive().welcome.envs_connected == 2
    assert built == [SPEC]
    staying.close()


def make_server(*addresses: str) -> ServerThread:
    """Returns a server that has not been started."""

    def make_service() -> InferenceService:
        return InferenceService(
            make_task=pb.Task, admit=lambda spec: "", batcher=WatchedBatcher(), metrics=Metrics()
        )

    def fail(error: BaseException) -> None:
        raise error

    return ServerThread(make_service, addresses, fail)


def test_tcp_and_unix_sockets_serve_at_once(tmp_path: Path) -> None:
    """Port 0 is replaced by the real one."""
    server = make_server("127.0.0.1:0", f"unix:{tmp_path / 'sock'}")
    tcp, unix = server.start()
    assert int(tcp.removeprefix("127.0.0.1:")) > 0
    for address in (tcp, unix):
        actor = FakeActor(address)
        actor.say_hello(1)
        actor.close()
    server.close()


def test_busy_port_is_refused() -> None:
    """Not shared with who has it, who would get half the actors."""
    with socket.create_server(("127.0.0.1", 0)) as owner:
        address = f"127.0.0.1:{owner.getsockname()[1]}"
        server = make_server(address)
        with pytest.raises(ConfigError, match=f"^listen: .* got {address}$"):
            server.start()
        server.close()


def test_unix_socket_of_a_living_server_is_refused(tmp_path: Path) -> None:
    """gRPC would take it away; what a dead one left behind is taken over."""
    address = f"unix:{tmp_path / 'sock'}"
    owner = make_server(address)
    owner.start()
    rival = make_server(address)
    with pytest.raises(ConfigError, match="^listen: expected"):
        rival.start()
    rival.close()
    owner.close()
    with socket.socket(socket.AF_UNIX) as dead:
        (tmp_path / "sock").unlink(missing_ok=True)
        dead.bind(str(tmp_path / "sock"))
    heir = make_server(address)
    assert heir.start() == [address]
    heir.close()


def test_address_that_cannot_be_bound_is_refused(tmp_path: Path) -> None:
    """A directory that does not exist, an address of another machine."""
    for address in (f"unix:{tmp_path / 'missing' / 'sock'}", "203.0.113.7:0"):
        server = make_server(address)
        with pytest.raises(ConfigError, match="^listen: expected an address that can be bound"):
            server.start()
        server.close()


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:0", "127.9.9.9:65535", "localhost:50051", "[::1]:50051", "unix:/tmp/s", "unix:s"],
)
def test_local_addresses_need_no_leave(address: str) -> None:
    """Only this machine's own processes reach them."""
    check_listen_addresses([address], insecure=False)


@pytest.mark.parametrize(
    "address", ["0.0.0.0:50051", "[::]:50051", "10.0.0.1:1", "learner:50051", "localhost.evil:1"]
)
def test_addresses_beyond_this_machine_need_insecure(address: str) -> None:
    """Nothing is encrypted, and nobody is asked who they are."""
    with pytest.raises(ConfigError, match="^listen: .*--insecure.*got"):
        check_listen_addresses(["127.0.0.1:0", address], insecure=False)
    check_listen_addresses([address], insecure=True)


@pytest.mark.parametrize(
    "address", ["", "localhost", "50051", ":50051", "h:-1", "h:65536", "unix:"]
)
def test_malformed_addresses_are_refused(address: str) -> None:
    """gRPC would bind something else instead, such as port 443."""
    with pytest.raises(ConfigError, match="^listen: expected"):
        check_listen_addresses([address], insecure=True)


def test_no_address_is_refused() -> None:
    """Nobody could ever connect."""
    with pytest.raises(ConfigError, match="^listen: expected one or more addresses, got none"):
        check_listen_addresses([], insecure=True)


def test_spec_that_differs_is_refused_with_the_field() -> None:
    """As an incompatibility of the two sides, not a broken message."""
    check_same_environment(SPEC, env_spec())
    with pytest.raises(IncompatibleError, match="^this run's action.num_values: expected 4, got 5"):
        check_same_environment(SPEC, env_spec(num_actions=5))
