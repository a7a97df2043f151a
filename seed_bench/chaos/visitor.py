"""An actor without an environment: it joins, sends rows of zeros, and leaves.

For tests of many actors and of large ones. Uses only seed/ and gRPC, so that it sends nothing
but the messages of the protocol.
"""

import queue
import uuid

import grpc
import numpy as np

from seed import wire
from seed.pb import inference_pb2 as pb
from seed.specs import ArraySpec, EnvSpec

SPEC = EnvSpec(
    observations=(ArraySpec(name="observation", dtype="float32", shape=(4,)),),
    action=ArraySpec(name="action", dtype="int64", num_values=2),
)

_OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", wire.MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", wire.MAX_MESSAGE_BYTES),
]


class Visitor:
    """One stream, from its hello to `leave` or `vanish`."""

    def __init__(
        self, address: str, *group_sizes: int, spec: EnvSpec = SPEC, timeout_s: float = 60.0
    ) -> None:
        """Joins; raises grpc.RpcError if the learner refuses it or takes too long."""
        self._hello = wire.Hello(
            run_id=uuid.uuid4().hex, role=pb.ROLE_TRAIN, group_sizes=group_sizes, spec=spec
        )
        self._channel = grpc.insecure_channel(address, options=_OPTIONS)
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._is_first = True
        act = self._channel.stream_stream(
            "/seed.v1.Inference/Act", response_deserializer=pb.ActResponse.FromString
        )
        self._call = act(iter(self._outgoing.get, None), timeout=timeout_s, wait_for_ready=True)
        self._outgoing.put(wire.encode_hello(self._hello).SerializeToString())
        try:
            self.welcome = next(self._call).welcome
        except BaseException:
            self.vanish()
            raise

    def play(self, num_steps: int) -> None:
        """Steps every group `num_steps` times, and checks that each answer is for its group."""
        for _ in range(num_steps):
            for group in range(len(self._hello.group_sizes)):
                self.send(self.step(group))
            for _ in self._hello.group_sizes:
                wire.decode_actions(next(self._call).actions, self._hello)
            self._is_first = False

    def step(self, group: int) -> bytes:
        """Returns the next step of a group, serialised."""
        size = self._hello.group_sizes[group]
        flags = np.zeros(size, bool)
        return wire.encode_env_outputs(
            wire.EnvOutputs(
                group=group,
                observations=tuple(
                    np.zeros((size, *leaf.shape), leaf.dtype)
                    for leaf in self._hello.spec.observations
                ),
                rewards=np.zeros(size, np.float32),
                is_first=flags | self._is_first,
                terminated=flags,
                truncated=flags,
            ),
            self._hello.spec,
        )

    def send(self, message: bytes) -> None:
        """Sends a message, valid or not."""
        self._outgoing.put(message)

    def status(self) -> tuple[grpc.StatusCode, str]:
        """Reads to the end of the stream; returns how it ended."""
        try:
            for _ in self._call:
                pass
        except grpc.RpcError:
            pass
        return self._call.code(), self._call.details()

    def leave(self) -> None:
        """Ends its side of the stream and waits for the learner's end."""
        self._outgoing.put(None)
        self.status()
        self._channel.close()

    def vanish(self) -> None:
        """Cancels the stream and closes the connection."""
        self._call.cancel()
        self._outgoing.put(None)
        self._channel.close()
