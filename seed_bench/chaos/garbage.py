"""Clients that no learner wants. Each returns whether it was refused correctly."""

import dataclasses
import math
import random
import socket
from collections.abc import Callable

import grpc
import numpy as np

from seed import wire
from seed.pb import inference_pb2 as pb
from seed.specs import EnvSpec
from seed_bench.chaos.visitor import Visitor

_TIMEOUT_S = 60.0

Client = Callable[[str, EnvSpec, random.Random], bool]


def choose_client(variant: int) -> tuple[str, Callable[[str, EnvSpec], bool]]:
    """Returns the name of one of the clients below, and a function that runs it at an address."""
    client = CLIENTS[variant % len(CLIENTS)]
    generator = random.Random(variant)
    return client.__name__.replace("_", " "), lambda address, spec: client(address, spec, generator)


def bytes_that_are_no_http(address: str, spec: EnvSpec, generator: random.Random) -> bool:
    """Sends random bytes. The learner closes the connection."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_TIMEOUT_S)
        connection.connect(address.removeprefix("unix:"))
        try:
            connection.sendall(generator.randbytes(1_000))
            while connection.recv(1_024):
                pass
        except ConnectionError:
            pass
    return True


def bytes_that_are_no_message(address: str, spec: EnvSpec, generator: random.Random) -> bool:
    """Sends bytes that are refused as no ActRequest, or as an invalid one."""
    return _send_raw(address, b"\xff" + generator.randbytes(200))


def message_without_end(address: str, spec: EnvSpec, generator: random.Random) -> bool:
    """Sends a message larger than any message may be."""
    return _send_raw(address, bytes(wire.MAX_MESSAGE_BYTES + 1), grpc.StatusCode.RESOURCE_EXHAUSTED)


def nan_in_an_observation(address: str, spec: EnvSpec, generator: random.Random) -> bool:
    """Sends one after a valid step."""

    def spoil(step: pb.EnvOutputs) -> None:
        values = np.frombuffer(step.observations[0], "<f4").copy()
        values[generator.randrange(len(values))] = math.nan
        step.observations[0] = values.tobytes()

    return _send_step(address, spec, spoil)


def infinite_reward(address: str, spec: EnvSpec, generator: random.Random) -> bool:
    """Sends one after a valid step."""

    def spoil(step: pb.EnvOutputs) -> None:
        step.rewards = np.full(2, math.inf, "<f4").tobytes()

    return _send_step(address, spec, spoil)


def group_that_is_not_there(address: str, spec: EnvSpec, generator: random.Random) -> bool:
    """Sends a step of a group that the hello did not announce."""

    def spoil(step: pb.EnvOutputs) -> None:
        step.group = 1 + generator.randrange(1_000)

    return _send_step(address, spec, spoil)


def environment_of_another_run(address: str, spec: EnvSpec, generator: random.Random) -> bool:
    """Sends another spec. The refusal names the first field that differs."""
    action = dataclasses.replace(spec.action, num_values=spec.action.num_values + 1)
    other = dataclasses.replace(spec, action=action)
    try:
        Visitor(address, 2, spec=other, timeout_s=_TIMEOUT_S).vanish()
    except grpc.RpcError as error:
        assert isinstance(error, grpc.Call)
        return error.code() is grpc.StatusCode.FAILED_PRECONDITION
    return False


def hello_and_then_silence(address: str, spec: EnvSpec, generator: random.Random) -> bool:
    """Sends a hello, then cancels its stream. It is not refused."""
    Visitor(address, 1 + generator.randrange(64), spec=spec, timeout_s=_TIMEOUT_S).vanish()
    return True


CLIENTS: tuple[Client, ...] = (
    bytes_that_are_no_http,
    bytes_that_are_no_message,
    message_without_end,
    nan_in_an_observation,
    infinite_reward,
    group_that_is_not_there,
    environment_of_another_run,
    hello_and_then_silence,
)


def _send_raw(
    address: str, data: bytes, wanted: grpc.StatusCode = grpc.StatusCode.INVALID_ARGUMENT
) -> bool:
    options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(address, options) as channel:
        act = channel.stream_stream("/seed.v1.Inference/Act")
        call = act(iter([data]), timeout=_TIMEOUT_S)
        try:
            for _ in call:
                pass
        except grpc.RpcError:
            pass
        return call.code() is wanted


def _send_step(address: str, spec: EnvSpec, spoil: Callable[[pb.EnvOutputs], None]) -> bool:
    visitor = Visitor(address, 2, spec=spec, timeout_s=_TIMEOUT_S)
    visitor.play(1)
    message = pb.ActRequest.FromString(visitor.step(0))
    spoil(message.env_outputs)
    visitor.send(message.SerializeToString())
    code, _ = visitor.status()
    visitor.vanish()
    return code is grpc.StatusCode.INVALID_ARGUMENT
