"""The actor's side of protos/inference.proto, over synchronous gRPC.

Used in the actor's main thread; gRPC's own threads write and read the socket.
The one place where `grpc.RpcError` becomes an error of `seed.errors`. Leaves
retrying to `session.py`.
"""

import contextlib
import math
import queue
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import grpc
import numpy as np

from actors.shared_steps import SharedSteps, open_shared
from seed.channel import connect
from seed.errors import IncompatibleError, LearnerUnavailableError, SeedError, WireError, expected
from seed.grpc_status import error_from_status
from seed.pb import inference_pb2 as pb
from seed.pb import inference_pb2_grpc as pb_grpc
from seed.security import PLAIN_TEXT, Security
from seed.step_memory import MEMORY_METADATA
from seed.wire import (
    PROTOCOL_VERSION,
    SERVICE,
    EnvOutputs,
    Hello,
    decode_actions,
    encode_env_outputs,
    encode_hello,
)

# Room for a message's framing, and for every environment to report an episode.
_MESSAGE_SLACK_BYTES = 64 * 1024
_BYTES_PER_EPISODE = 32

# A signal that arrives just before a wait does not interrupt it: its handler runs only
# when the wait ends. So no wait of the main thread is longer than this.
LONGEST_WAIT_S = 0.2

# How long the learner may take to end a stream that the actor has ended.
_CLOSE_GRACE_S = 1.0

_CHANNEL_OPTIONS = [
    # A dead machine sends no FIN. These notice it within keepalive time + timeout. The
    # learner must allow pings as frequent as these while it sends nothing
    # (grpc.http2.min_ping_interval_without_data_ms), or it ends the connection.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    # Each channel connects at once instead of inheriting the backoff of the last
    # one; `session.py` decides when to try again.
    ("grpc.use_local_subchannel_pool", 1),
]


def open_channel(
    address: str, hello: Hello | None = None, security: Security = PLAIN_TEXT
) -> grpc.Channel:
    """Returns a channel to "host:port" or "unix:/path" that connects on first use.

    Args:
      address: where the learner listens.
      hello: see `channel_options`.
      security: whether and how to speak TLS.
    """
    return connect(address, security, channel_options(hello))


def channel_options(hello: Hello | None = None) -> list[tuple[str, int]]:
    """Returns the options of an actor's channel.

    `hello` bounds messages by the largest that its groups can send and receive. Without it
    gRPC's own bounds hold.
    """
    options = list(_CHANNEL_OPTIONS)
    if hello is not None:
        sent, received = _message_bytes(hello)
        options.append(("grpc.max_send_message_length", sent))
        options.append(("grpc.max_receive_message_length", received))
    return options


def _message_bytes(hello: Hello) -> tuple[int, int]:
    """Returns the largest (sent, received) message of an actor's stream."""
    num_envs = max(hello.group_sizes)
    observation = sum(leaf.num_bytes for leaf in hello.spec.observations)
    reward_and_flags = 5
    sent = num_envs * (observation + reward_and_flags + _BYTES_PER_EPISODE)
    received = num_envs * math.prod(hello.spec.action.shape) * 8
    return sent + _MESSAGE_SLACK_BYTES, received + _MESSAGE_SLACK_BYTES


def fetch_task(
    channel: grpc.Channel, role: pb.Role, timeout_s: float, security: Security = PLAIN_TEXT
) -> pb.Task:
    """Asks the learner for a task, and shows it the token.

    Raises:
      LearnerUnavailableError: the learner does not answer, for now.
      AccessError: the learner wants another token.
      IncompatibleError: the learner speaks another version.
      WireError: the task has no environments.
    """
    request = pb.GetTaskRequest(protocol_version=PROTOCOL_VERSION, role=role)
    with _translated_errors():
        task = pb_grpc.InferenceStub(channel).GetTask(
            request, timeout=timeout_s, metadata=security.metadata
        )
    if task.protocol_version != PROTOCOL_VERSION:
        wanted, got = f"the actor's {PROTOCOL_VERSION}", f"the learner's {task.protocol_version}"
        raise IncompatibleError(expected("protocol_version", wanted, got))
    for field in ("envs_per_group", "num_groups"):
        if getattr(task, field) < 1:
            raise WireError(expected(field, "at least 1", getattr(task, field)))
    return task


def act_rpc(channel: Any) -> Any:
    """Returns `Act` of a grpc or grpc.aio channel; its requests are serialised already."""
    return channel.stream_stream(f"/{SERVICE}/Act", response_deserializer=pb.ActResponse.FromString)


class PolicyStream:
    """One `Act` stream: the connection through which `run_loop` gets its actions.

        with PolicyStream(channel, hello, timeout_s) as stream:   # hello, welcome
            stream.send(outputs)
            group, actions = stream.receive()

    One thread uses it, and a thread of its own waits on the socket: a signal that
    interrupts a wait inside gRPC would leave the stream unusable, but one that
    interrupts `receive` does no harm. Leaving the context ends the stream within a
    second, even if the learner does not answer.
    """

    def __init__(
        self,
        channel: grpc.Channel,
        hello: Hello,
        timeout_s: float,
        security: Security = PLAIN_TEXT,
        *,
        shares_memory: bool = False,
    ) -> None:
        """Opens the stream, shows the token, and waits for the welcome.

        Args:
          channel: made with the options of `hello`.
          hello: what the actor is and steps.
          timeout_s: seconds to wait for the welcome.
          security: holds the token.
          shares_memory: asks the learner to pass steps and answers through memory; the
            stream carries them if the learner is on another machine or refuses.

        Raises:
          LearnerUnavailableError: no learner, or no welcome within `timeout_s`.
          AccessError: the learner wants another token.
          WireError, IncompatibleError: the learner refuses the hello.
        """
        self._hello = hello
        self._shared: SharedSteps | None = None
        # Neither queue grows: a group sends nothing before its last step is answered.
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._responses: queue.SimpleQueue[pb.ActResponse | SeedError] = queue.SimpleQueue()
        self._requests.put(encode_hello(hello).SerializeToString())
        metadata = (*security.metadata, *([(MEMORY_METADATA, "wanted")] if shares_memory else ()))
        self._call = act_rpc(channel)(iter(self._requests.get, None), metadata=metadata)
        self._reader = threading.Thread(target=self._read, name="policy-stream", daemon=True)
        self._reader.start()
        try:
            self.welcome = self._next("welcome", timeout_s).welcome
            self._shared = open_shared(self._call.initial_metadata(), hello)
        except BaseException:
            self.close()
            raise

    def send(self, outputs: EnvOutputs) -> None:
        """Sends one step of a group. A lost connection is raised by `receive`."""
        if self._shared is not None:
            self._shared.send(outputs)
            return
        self._requests.put(encode_env_outputs(outputs, self._hello.spec))

    def receive(self) -> tuple[int, np.ndarray]:
        """Waits for the next answer: (group, actions [E], read-only).

        Raises:
          LearnerUnavailableError: the connection or the learner is gone.
          WireError: either side sent what the other cannot accept.
        """
        if self._shared is not None:
            with contextlib.suppress(EOFError):  # `_next` then raises the reason
                while (answer := self._shared.receive(LONGEST_WAIT_S)) is None:
                    pass
                return answer
        return decode_actions(self._next("actions").actions, self._hello)

    @property
    def silence_limit_s(self) -> float:
        """Seconds after which the learner gives up an actor that gives no sign of life; 0 if it
        takes none."""
        return self.welcome.silence_limit_s

    def send_sign(self, sign: pb.SignOfLife) -> None:
        """Sends a sign of life; any thread may call it."""
        self._requests.put(pb.ActRequest(sign_of_life=sign).SerializeToString())

    def close(self) -> None:
        """Ends the stream; steps without an answer are dropped."""
        self._requests.put(None)
        self._reader.join(_CLOSE_GRACE_S)
        self._call.cancel()
        self._reader.join()
        if self._shared is not None:
            self._shared.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _next(self, payload: str, timeout_s: float = math.inf) -> pb.ActResponse:
        response = self._take(timeout_s)
        if response is None:
            raise LearnerUnavailableError(f"no {payload} in {timeout_s:g} s")
        if isinstance(response, SeedError):
            raise response
        if response.WhichOneof("payload") != payload:
            raise WireError(expected("payload", payload, response.WhichOneof("payload")))
        return response

    def _take(self, timeout_s: float) -> pb.ActResponse | SeedError | None:
        give_up = time.monotonic() + timeout_s
        while (left_s := give_up - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                return self._responses.get(timeout=min(left_s, LONGEST_WAIT_S))
        return None

    def _read(self) -> None:
        """Queues what the learner sends, and last the error that ended the stream."""
        try:
            with _translated_errors():
                for response in self._call:
                    self._responses.put(response)
            self._responses.put(LearnerUnavailableError("the learner ended the stream"))
        except SeedError as error:
            self._responses.put(error)


@contextlib.contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        yield
    except grpc.RpcError as error:
        assert isinstance(error, grpc.Call)
        raise error_from_status(error.code(), error.details() or "") from error
