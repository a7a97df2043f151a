"""The server over real gRPC, with a fake actor that sends single messages and fake inference."""

import contextlib
import itertools
import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import grpc
import numpy as np

from learner.acting.batcher import Batcher, Request
from learner.concurrency.stopping import Stopped
from learner.concurrency.threads import start_thread
from learner.config.run_config import InferenceConfig
from learner.reporting.metrics import Metrics
from learner.service import Service, ServingConfig
from learner.serving.limits import Limits
from learner.serving.session import Timeouts
from seed import wire
from seed.channel import connect
from seed.pb import inference_pb2 as pb
from seed.pb import inference_pb2_grpc as pb_grpc
from seed.security import PLAIN_TEXT, Security
from seed.specs import EnvSpec
from tests.learner.builders import TIMEOUT_S, env_outputs, env_spec

SPEC = env_spec()

INVALID = grpc.StatusCode.INVALID_ARGUMENT
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION

# A step with this reward is answered only when the test says so.
HELD = -1.0


class FakeInference:
    """Answers every request with its rewards as actions, at once or when told to.

    See `learner.service.Acting`.
    """

    def __init__(self, batcher: Batcher, on_failure: Callable[[BaseException], None]) -> None:
        self.requests: list[Request] = []
        self.held: queue.Queue[Request] = queue.Queue()
        self._batcher = batcher
        self._on_failure = on_failure

    def start(self) -> None:
        """Starts the thread."""
        self._thread = start_thread("inference", self._run, self._on_failure)

    def stop(self) -> None:
        """The thread waits only for the batcher."""

    def join(self) -> None:
        """Waits for the thread."""
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        with contextlib.suppress(Stopped):
            while True:
                for request in self._batcher.next_batch():
                    self.requests.append(request)
                    if (request.outputs.rewards == HELD).all():
                        self.held.put(request)
                    else:
                        request.reply(request.outputs.rewards.astype(np.int64))


class WatchedBatcher(Batcher):
    """Tells when an actor has come or left."""

    def __init__(self) -> None:
        super().__init__(InferenceConfig(min_fill=0))
        self.connected: queue.Queue[int] = queue.Queue()
        self._latest = 0

    def set_connected(self, num_envs: int) -> None:
        super().set_connected(num_envs)
        self._latest = num_envs
        self.connected.put(num_envs)

    def wait_for_connected(self, num_envs: int) -> None:
        """Returns at the next change to `num_envs` connected environments."""
        while self.connected.get(timeout=TIMEOUT_S) != num_envs:
            pass

    def wait_until_connected_are(self, num_envs: int) -> None:
        """Returns once `num_envs` environments are connected, which they may be already."""
        while self._latest != num_envs:
            self.connected.get(timeout=TIMEOUT_S)


class WatchedMetrics(Metrics):
    """Tells when a stream has been refused; an ingress process reports it after its status."""

    def __init__(self) -> None:
        super().__init__()
        self._refusals = threading.Semaphore(0)

    def sum(self, name: str, value: float) -> None:
        super().sum(name, value)
        if name == "actors/refused":
            self._refusals.release()

    def wait_for_refusal(self) -> None:
        """Returns once one more stream has been counted as refused."""
        assert self._refusals.acquire(timeout=TIMEOUT_S), "no stream was counted as refused"


def _serialised(message: pb.ActRequest | bytes) -> bytes:
    return message if isinstance(message, bytes) else message.SerializeToString()


class FakeActor:
    """The actor's end of one stream, which sends and receives single messages."""

    def __init__(
        self,
        address: str,
        security: Security = PLAIN_TEXT,
        timeout_s: float = TIMEOUT_S,
        metadata: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self._channel = connect(address, security, [("grpc.use_local_subchannel_pool", 1)])
        self._outgoing: queue.Queue[pb.ActRequest | bytes | None] = queue.Queue()
        self.stub = pb_grpc.InferenceStub(self._channel)
        act = self._channel.stream_stream(
            "/seed.v1.Inference/Act",
            request_serializer=_serialised,
            response_deserializer=pb.ActResponse.FromString,
        )
        self._stream = act(
            iter(self._outgoing.get, None),
            timeout=timeout_s,
            metadata=(*security.metadata, *metadata),
        )

    def send(self, message: pb.ActRequest | bytes) -> None:
        """Sends a message, valid or not."""
        self._outgoing.put(message)

    def say_hello(self, *group_sizes: int, role: pb.Role = pb.ROLE_TRAIN) -> pb.Welcome:
        """Sends the hello, and returns the welcome."""
        self.send(hello(*group_sizes, role=role))
        return self.receive().welcome

    def start(self, *group_sizes: int) -> None:
        """Sends the hello, and the first step of every group."""
        self.say_hello(*group_sizes)
        for group, size in enumerate(group_sizes):
            self.act(first(size, group=group))

    def act(self, message: pb.ActRequest) -> pb.Actions:
        """Sends a step, and returns its actions."""
        self.send(message)
        return self.receive().actions

    def receive(self) -> pb.ActResponse:
        """Returns the next message; raises gRPC's own errors."""
        return next(self._stream)

    def first_metadata(self) -> Sequence[tuple[str, str | bytes]]:
        """Returns the metadata that the server sent before its first message."""
        return self._stream.initial_metadata()

    def finish_sending(self) -> None:
        """Closes the actor's side of the stream."""
        self._outgoing.put(None)

    def status(self) -> tuple[grpc.StatusCode, str]:
        """Reads to the end of the stream, and returns its status and details."""
        try:
            for _ in self._stream:
                pass
        except grpc.RpcError:
            pass
        return self._stream.code(), self._stream.details()

    def ends_within(self, seconds: float) -> bool:
        """Returns whether the stream ends in this time."""
        ended = threading.Event()
        if not self._stream.add_callback(ended.set):
            return True
        return ended.wait(seconds)

    def close(self) -> None:
        """Closes the channel without an orderly end of the stream."""
        self._stream.cancel()
        self._outgoing.put(None)
        self._channel.close()


def hello(*group_sizes: int, role: pb.Role = pb.ROLE_TRAIN, spec: EnvSpec = SPEC) -> pb.ActRequest:
    """Returns an actor's hello."""
    return wire.encode_hello(
        wire.Hello(run_id="run", role=role, group_sizes=group_sizes, spec=spec)
    )


def step(num_envs: int, *, group: int = 0, value: float = 0.0) -> pb.ActRequest:
    """Returns a step that followed from an action."""
    outputs = env_outputs(num_envs, group=group, value=value)
    return pb.ActRequest.FromString(wire.encode_env_outputs(outputs, SPEC))


def first(num_envs: int, *, group: int = 0, value: float = 0.0) -> pb.ActRequest:
    """Returns a step that starts every episode of the group."""
    message = step(num_envs, group=group, value=value)
    message.env_outputs.step_flags = bytes([pb.STEP_FLAG_IS_FIRST] * num_envs)
    return message


class _SlowService(Service):
    """The learner's service, which calls the test for every actor that it admits."""

    admit: Callable[[EnvSpec], object] | None = None

    def _admit(self, spec: EnvSpec) -> str:
        name = super()._admit(spec)
        if self.admit is not None:
            self.admit(spec)
        return name


class Serving:
    """The learner's service with a fake inference thread behind it."""

    def __init__(
        self,
        directory: Path,
        admit: Callable[[EnvSpec], object] | None = None,
        timeouts: Timeouts | None = None,
        limits: Limits | None = None,
        ingress_processes: int = 0,
        security: Security = PLAIN_TEXT,
        listen: Sequence[str] = (),
    ) -> None:
        """`admit` may block; `listen` are further addresses."""
        self.batcher = WatchedBatcher()
        self.metrics = WatchedMetrics()
        self.failures: list[BaseException] = []
        self.inference = FakeInference(self.batcher, self.failures.append)
        self._actors: list[FakeActor] = []
        self._service = _SlowService(
            ServingConfig(
                timeouts=timeouts or Timeouts(),
                limits=limits or Limits(),
                ingress_processes=ingress_processes,
                security=security,
            ),
            name="a-run",
            make_task=lambda: pb.Task(env_id="CartPole-v1"),
            build=lambda spec, batcher: self.inference,
            on_failure=self.failures.append,
            metrics=self.metrics,
            spec=SPEC,
            batcher=self.batcher,
        )
        self._service.admit = admit
        self.address = f"unix:{directory / 'learner.sock'}"
        # The actors take turns, so that each of several processes gets some of them.
        self.addresses = self._service.start([*listen, self.address])
        self._next_address = itertools.cycle(self.addresses)

    def actor(self) -> FakeActor:
        """Returns an actor that has not sent anything yet."""
        actor = FakeActor(next(self._next_address))
        self._actors.append(actor)
        return actor

    @property
    def ingress_pids(self) -> list[int]:
        """Ids of the ingress processes."""
        return self._service.ingress_pids

    def complete(self) -> None:
        """Tells all actors that the run is complete."""
        self._service.complete()

    def stop_server(self) -> None:
        """Ends every stream."""
        self._service.close()

    def close(self) -> None:
        """Ends everything, and fails the test with an error of the service."""
        for actor in self._actors:
            actor.close()
        self._service.close()
        assert self.failures == []


def sign(*, group: int = 0, busy_s: float = 1.0, envs_ready: int = 0) -> pb.ActRequest:
    """Returns a sign of life."""
    return pb.ActRequest(
        sign_of_life=pb.SignOfLife(group=group, busy_s=busy_s, envs_ready=envs_ready)
    )
