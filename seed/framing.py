"""Carries large observations past protobuf, which copies a bytes field four times.

The bytes are those of protos/inference.proto: any protobuf library can read the output of
`join_request`, and `parse_request` can read the output of any protobuf library. Called for
every message by the actor and by the learner's server thread; `seed/wire.py` says what
the fields hold.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from seed.errors import WireError, expected
from seed.pb import inference_pb2 as pb

Buffer = bytes | memoryview

_LAST_VARINT_SHIFT = 63


class WireType:
    """How protobuf encodes a field; a tag is (field number << 3) | wire type."""

    VARINT = 0
    FIXED64 = 1
    BYTES = 2
    FIXED32 = 5


def _bytes_tag(field: int) -> int:
    return field << 3 | WireType.BYTES


_ENV_OUTPUTS_TAG = _bytes_tag(pb.ActRequest.ENV_OUTPUTS_FIELD_NUMBER)
_OBSERVATIONS_TAG = _bytes_tag(pb.EnvOutputs.OBSERVATIONS_FIELD_NUMBER)


class Request(NamedTuple):
    """A received ActRequest."""

    message: pb.ActRequest
    """The request; its `env_outputs.observations` may be empty."""
    observations: Sequence[Buffer]
    """The buffers of that field, usually views of the received bytes."""


def join_request(outputs: pb.EnvOutputs, observations: Sequence[np.ndarray]) -> bytes:
    """Returns the serialised ActRequest that carries a step.

    Args:
      outputs: the step without its observations.
      observations: C-contiguous arrays, copied once, into the result.
    """
    fields = outputs.SerializeToString()
    pieces: list[Any] = [fields]  # bytes, and arrays for bytes.join to read in place
    num_bytes = len(fields)
    for array in observations:
        head = bytes([_OBSERVATIONS_TAG]) + _encode_varint(array.nbytes)
        pieces += [head, array]
        num_bytes += len(head) + array.nbytes
    return b"".join([bytes([_ENV_OUTPUTS_TAG]), _encode_varint(num_bytes), *pieces])


def parse_request(data: bytes) -> Request:
    """Returns the ActRequest in `data`; raises WireError if `data` holds none."""
    try:
        return _parse_step(data)
    except (DecodeError, _NotPlain):
        pass
    # A hello; or a step in an order that protobuf allows but no library writes.
    try:
        message = pb.ActRequest.FromString(data)
    except DecodeError as error:
        raise WireError(expected("message", "an ActRequest", "bytes that are none")) from error
    return Request(message, message.env_outputs.observations)


class _NotPlain(Exception):
    """The bytes are not one env_outputs and nothing else."""


def _parse_step(data: bytes) -> Request:
    tag, at = _decode_varint(data, 0)
    num_bytes, at = _decode_varint(data, at)
    if tag != _ENV_OUTPUTS_TAG or at + num_bytes != len(data):
        raise _NotPlain
    view = memoryview(data)
    observations, others = [], []
    for tag, start, content, stop in _fields(data, at):
        if tag == _OBSERVATIONS_TAG:
            observations.append(view[content:stop])
        else:
            others.append(view[start:stop])
    message = pb.ActRequest()
    message.env_outputs.MergeFromString(b"".join(others))
    return Request(message, observations)


def _fields(data: bytes, at: int) -> Iterator[tuple[int, int, int, int]]:
    """Yields (tag, start, content, stop) of every field from `at` to the end of `data`."""
    while at < len(data):
        start = at
        tag, at = _decode_varint(data, at)
        content = at
        match tag & 7:
            case WireType.BYTES:
                num_bytes, content = _decode_varint(data, at)
                at = content + num_bytes
            case WireType.VARINT:
                _, at = _decode_varint(data, at)
            case WireType.FIXED64:
                at += 8
            case WireType.FIXED32:
                at += 4
            case _:
                raise _NotPlain
        if at > len(data):
            raise _NotPlain
        yield tag, start, content, at


def _encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _decode_varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns (value, index of the first byte after it)."""
    value = shift = 0
    while at < len(data) and shift <= _LAST_VARINT_SHIFT:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise _NotPlain
