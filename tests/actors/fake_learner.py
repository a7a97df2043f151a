"""A learner of a few lines: real gRPC, a function for a policy, and refusals that a test sets."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
import numpy as np

from seed.errors import SeedError
from seed.grpc_status import status_of
from seed.pb import inference_pb2 as pb
from seed.pb import inference_pb2_grpc as pb_grpc
from seed.wire import (
    PROTOCOL_VERSION,
    EnvOutputs,
    Hello,
    decode_env_outputs,
    decode_hello,
    encode_actions,
)

Policy = Callable[[EnvOutputs], np.ndarray]


def stay_still(outputs: EnvOutputs) -> np.ndarray:
    """Returns action 0 for every environment."""
    return np.zeros(len(outputs.rewards), np.int64)


class FakeLearner(pb_grpc.InferenceServicer):
    """Serves a task and a policy, and keeps every message that it receives."""

    def __init__(
        self,
        env_id: str = "seed/Catch-v0",
        settings: dict[str, Any] | None = None,
        policy: Policy = stay_still,
        refusal: SeedError | None = None,
        silence_limit_s: float = 0.0,
        on_sign: Callable[[pb.SignOfLife], None] = lambda sign: None,
    ) -> None:
        self.task = pb.Task(
            protocol_version=PROTOCOL_VERSION,
            env_id=env_id,
            env_settings_json=json.dumps(settings or {}),
            envs_per_group=2,
            num_groups=2,
            base_seed=1,
        )
        self.hellos: list[Hello] = []
        self.outputs: list[EnvOutputs] = []
        self.stepped = threading.Event()
        """Set once an actor has sent a step that followed from an action."""
        self.streams_ended = threading.Semaphore(0)
        """Released at the end of each stream, after an error too."""
        self.streams_closed = 0
        """Streams that their actor closed in order."""
        self._policy = policy
        self._refusal = refusal
        self._silence_limit_s = silence_limit_s
        self._on_sign = on_sign

    def GetTask(self, request: pb.GetTaskRequest, context: grpc.ServicerContext) -> pb.Task:
        return self.task

    def Act(
        self, request_iterator: Iterator[pb.ActRequest], context: grpc.ServicerContext
    ) -> Iterator[pb.ActResponse]:
        try:
            hello = decode_hello(next(request_iterator).hello)
            self.hellos.append(hello)
            if self._refusal:
                context.abort(status_of(self._refusal), str(self._refusal))
            welcome = pb.Welcome(run_name="fake", silence_limit_s=self._silence_limit_s)
            yield pb.ActResponse(welcome=welcome)
            for request in request_iterator:
                if request.WhichOneof("payload") == "sign_of_life":
                    self._on_sign(request.sign_of_life)
                    continue
                outputs = decode_env_outputs(request.env_outputs, hello)
                self.outputs.append(outputs)
                if not outputs.is_first.all():
                    self.stepped.set()
                yield encode_actions(outputs.group, self._policy(outputs), hello.spec)
            # Inactive if the actor broke off instead.
            self.streams_closed += context.is_active()
        finally:
            self.streams_ended.release()


@contextlib.contextmanager
def serving(learner: FakeLearner, address: str) -> Iterator[None]:
    """Serves `learner` at `address`; ends its streams on exit."""
    server = grpc.server(
        futures.ThreadPoolExecutor(4), options=[("grpc.max_receive_message_length", -1)]
    )
    pb_grpc.add_InferenceServicer_to_server(learner, server)
    server.add_insecure_port(address)
    server.start()
    try:
        yield
    finally:
        server.stop(grace=None).wait()
