"""The shortcut past protobuf reads and writes the same bytes as protobuf."""

from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from seed.errors import WireError
from seed.framing import Request, join_request, parse_request
from seed.pb import inference_pb2 as pb

OBSERVATIONS = [np.arange(300, dtype=np.uint8).reshape(3, 100), np.ones((3, 2), np.float32)]


def step(**fields: Any) -> pb.EnvOutputs:
    """Returns a step without observations."""
    return pb.EnvOutputs(group=3, rewards=bytes(12), step_flags=b"\1\2\4", **fields)


def as_step(body: bytes) -> bytes:
    """Returns an ActRequest whose env_outputs are encoded as `body`, of up to 127 bytes."""
    return bytes([0x12, len(body)]) + body


def whole(request: Request) -> pb.ActRequest:
    """Returns the message with its observations in their place."""
    message = pb.ActRequest()
    message.CopyFrom(request.message)
    if message.WhichOneof("payload") == "env_outputs":
        del message.env_outputs.observations[:]
        message.env_outputs.observations.extend(bytes(x) for x in request.observations)
    return message


def test_protobuf_reads_what_is_joined() -> None:
    """An actor in C++ and one in Python look alike to any learner."""
    episodes = [pb.Episode(env=2, episode_return=-1.5, length=2**31)]
    joined = pb.ActRequest.FromString(join_request(step(episodes=episodes), OBSERVATIONS))
    observations = [x.tobytes() for x in OBSERVATIONS]
    assert joined == pb.ActRequest(env_outputs=step(episodes=episodes, observations=observations))


def test_observations_are_views_of_what_was_received() -> None:
    """No byte of an observation is copied."""
    data = pb.ActRequest(env_outputs=step(observations=[b"abc", b"", b"d" * 200]))
    received = data.SerializeToString()
    request = parse_request(received)
    assert [bytes(x) for x in request.observations] == [b"abc", b"", b"d" * 200]
    assert all(isinstance(x, memoryview) and x.obj is received for x in request.observations)


MESSAGES = {
    "nothing": b"",
    "hello": pb.ActRequest(hello=pb.Hello(run_id="x", group_sizes=[1])).SerializeToString(),
    "empty_step": pb.ActRequest(env_outputs=pb.EnvOutputs()).SerializeToString(),
    # Protobuf merges these.
    "step_in_two": pb.ActRequest(env_outputs=step(observations=[b"a"])).SerializeToString()
    + pb.ActRequest(env_outputs=pb.EnvOutputs(group=9, observations=[b"b"])).SerializeToString(),
    # Of a oneof the last field counts.
    "step_then_hello": pb.ActRequest(env_outputs=step(observations=[b"a"])).SerializeToString()
    + pb.ActRequest(hello=pb.Hello(run_id="x")).SerializeToString(),
    # Fields 100 and 101 of a later version, of each wire type, between the others.
    "unknown_fields": as_step(
        b"\xa0\x06\x07\x12\x02ab\xa1\x06" + bytes(8) + b"\xa5\x061234\xaa\x06\x03xyz\x08\x05"
    ),
    "unknown_group": as_step(b"\xa3\x06\x08\x01\xa4\x06\x12\x01c\x08\x05"),
    # The number 2 in three bytes where one is enough.
    "long_varint": as_step(b"\x12\x82\x80\x00ab\x08\x85\x00"),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_reads_as_protobuf_does(name: str) -> None:
    """This includes bytes that no library would write."""
    data = MESSAGES[name]
    assert whole(parse_request(data)) == pb.ActRequest.FromString(data)


BROKEN = {
    "cut_short": pb.ActRequest(env_outputs=step(observations=[b"abc"])).SerializeToString()[:-1],
    "leaf_longer_than_the_step": b"\x12\x03\x12\x05a",
    "leaf_of_2_to_the_63_bytes": b"\x12\x0b\x12" + b"\xff" * 8 + b"\x7f" + b"a",
    "endless_varint": b"\x12\x0d\x08" + b"\xff" * 12,
    "text_that_is_none": pb.ActRequest(hello=pb.Hello(run_id="abc"))
    .SerializeToString()
    .replace(b"abc", b"\xff\xff\xff"),
    "group_without_end": b"\x12\x01\x0b",
}


@pytest.mark.parametrize("name", BROKEN)
def test_bytes_that_are_no_message_are_refused(name: str) -> None:
    """The sender gets the error."""
    with pytest.raises(WireError, match="^message: expected an ActRequest"):
        parse_request(BROKEN[name])


@given(st.binary(max_size=40), st.booleans())
def test_agrees_with_protobuf_on_any_bytes(body: bytes, is_step: bool) -> None:
    """Both refuse the same bytes, and read all others as the same message."""
    data = as_step(body) if is_step else body
    try:
        expected = pb.ActRequest.FromString(data)
    except DecodeError:
        with pytest.raises(WireError):
            parse_request(data)
    else:
        assert whole(parse_request(data)) == expected
