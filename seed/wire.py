"""Arrays <-> protobuf messages, nothing else.

Decoding is zero-copy: the returned arrays are read-only views of the message's
bytes. Every decoder checks counts and sizes against the spec and raises
`WireError` naming the field, so that later code never meets a malformed array.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from seed.errors import WireError, expected
from seed.framing import Buffer, join_request
from seed.pb import inference_pb2 as pb
from seed.specs import ArraySpec, EnvSpec

PROTOCOL_VERSION = 1

# The name by which gRPC calls the service of protos/inference.proto, without generated code.
SERVICE = pb.DESCRIPTOR.services_by_name["Inference"].full_name

# Most environments one actor may announce; a sanity bound, not a tuning knob.
MAX_ENVS_PER_ACTOR = 65_536

# Largest message that either side takes; an actor whose groups would need more is refused.
MAX_MESSAGE_BYTES = 256 * 1024 * 1024

# Run ids appear in refusals and logs.
MAX_RUN_ID_LENGTH = 200

# In the order of the fields of `EnvOutputs`.
_FLAGS = np.array(
    [pb.STEP_FLAG_IS_FIRST, pb.STEP_FLAG_TERMINATED, pb.STEP_FLAG_TRUNCATED], np.uint8
)
_KNOWN_FLAGS = np.bitwise_or.reduce(_FLAGS)


# Networks compute in float32, also with leaves of float64.
_FLOAT32_MAX = np.finfo(np.float32).max


class Episode(NamedTuple):
    """A full game that has just ended."""

    env: int
    """Index of the environment in its group."""
    episode_return: float
    """Undiscounted sum of raw rewards."""
    length: int
    """Env steps (actions applied)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvOutputs:
    """What one group of E environments emitted on one step."""

    group: int
    observations: tuple[np.ndarray, ...]
    """One array per leaf of the spec: leaf dtype, shape [E, *leaf.shape]."""
    rewards: np.ndarray
    """float32 [E]: raw reward received on arriving here; 0 where `is_first`."""
    is_first: np.ndarray
    """bool [E]: the observation followed from a reset."""
    terminated: np.ndarray
    """bool [E]: the return ends here."""
    truncated: np.ndarray
    """bool [E]: the episode is cut here, the return is not."""
    episodes: Sequence[Episode] = ()
    failures: int = 0
    """How often environments failed in this step: they were replaced, or their episode was cut."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hello:
    """How an actor introduces itself."""

    run_id: str
    role: pb.Role
    """`pb.ROLE_TRAIN` or `pb.ROLE_EVAL`."""
    group_sizes: tuple[int, ...]
    spec: EnvSpec


@functools.cache
def _little_endian(dtype: str) -> np.dtype:
    return np.dtype(dtype).newbyteorder("<")


def _to_bytes(array: np.ndarray, dtype: str) -> bytes:
    return np.ascontiguousarray(array, _little_endian(dtype)).tobytes()


def _from_bytes(buffer: Buffer, dtype: str, shape: tuple[int, ...], field: str) -> np.ndarray:
    little = _little_endian(dtype)
    wanted = math.prod(shape) * little.itemsize
    if len(buffer) != wanted:
        raise WireError(
            expected(field, f"{wanted} bytes for {dtype} {list(shape)}", f"{len(buffer)} bytes")
        )
    return np.frombuffer(buffer, little).reshape(shape)


def encode_env_outputs(outputs: EnvOutputs, spec: EnvSpec) -> bytes:
    """Returns the serialised ActRequest that carries one step of a group."""
    flags = _FLAGS @ np.array([outputs.is_first, outputs.terminated, outputs.truncated])
    message = pb.EnvOutputs(
        group=outputs.group,
        rewards=_to_bytes(outputs.rewards, "float32"),
        step_flags=_to_bytes(flags, "uint8"),
        episodes=[
            pb.Episode(env=e.env, episode_return=e.episode_return, length=e.length)
            for e in outputs.episodes
        ],
        failures=outputs.failures,
    )
    leaves = zip(outputs.observations, spec.observations, strict=True)
    return join_request(
        message, [np.ascontiguousarray(x, _little_endian(leaf.dtype)) for x, leaf in leaves]
    )


def decode_env_outputs(
    message: pb.EnvOutputs, hello: Hello, observations: Sequence[Buffer] | None = None
) -> EnvOutputs:
    """Returns the step in `message`, checked against what `hello` announced.

    Args:
      message: the received step.
      hello: the introduction of its sender.
      observations: the buffers of that field, if `message` does not hold them.

    Raises:
      WireError: a group, count, size, flag or value that does not fit; names the field.
    """
    if observations is None:
        observations = message.observations
    group = message.group
    if group >= len(hello.group_sizes):
        raise WireError(expected("group", f"below {len(hello.group_sizes)}", group))
    num_envs = hello.group_sizes[group]
    leaves = hello.spec.observations
    if len(observations) != len(leaves):
        raise WireError(expected("observations", f"{len(leaves)} leaves", len(observations)))
    rewards = _from_bytes(message.rewards, "float32", (num_envs,), "rewards")
    flags = _from_bytes(message.step_flags, "uint8", (num_envs,), "step_flags")
    if np.bitwise_or.reduce(flags) & ~_KNOWN_FLAGS:
        raise WireError(expected("step_flags", f"sums of {_KNOWN_FLAGS:#b}", flags.max()))
    is_first, terminated, truncated = (flags & _FLAGS[:, None]) != 0
    if len(message.episodes) > num_envs:
        wanted = f"at most one for each of {num_envs} environments"
        raise WireError(expected("episodes", wanted, len(message.episodes)))
    outputs = EnvOutputs(
        group=group,
        observations=tuple(
            _from_bytes(buffer, leaf.dtype, (num_envs, *leaf.shape), _field_of(leaf))
            for buffer, leaf in zip(observations, leaves, strict=True)
        ),
        rewards=rewards,
        is_first=is_first,
        terminated=terminated,
        truncated=truncated,
        episodes=[Episode(e.env, e.episode_return, e.length) for e in message.episodes],
        failures=message.failures,
    )
    check_values(outputs, hello.spec)
    return outputs


def check_values(outputs: EnvOutputs, spec: EnvSpec) -> None:
    """Raises WireError naming the field that holds a value on which nothing may be trained.

    The caller has already checked counts and sizes.
    """
    _check_finite(outputs.rewards, "rewards")
    for leaf, array in zip(spec.observations, outputs.observations, strict=True):
        field = _field_of(leaf)
        _check_finite(array, field)
        if leaf.is_discrete and (array.min() < 0 or array.max() >= leaf.num_values):
            got = f"{array.min()} .. {array.max()}"
            raise WireError(expected(field, f"values in 0 .. {leaf.num_values - 1}", got))
    for episode in outputs.episodes:
        _check_episode(episode, len(outputs.rewards))


def _field_of(leaf: ArraySpec) -> str:
    return f"observations[{leaf.name!r}]"


def _check_finite(array: np.ndarray, field: str) -> None:
    """Refuses NaN, infinity and what is infinite in float32: one would reach every weight.

    The first index in the message is the environment's in its group.
    """
    if array.dtype.kind != "f":
        return
    is_wide = array.dtype.itemsize > _FLOAT32_MAX.itemsize
    right = np.abs(array) <= _FLOAT32_MAX if is_wide else np.isfinite(array)
    if not right.all():
        index = np.argwhere(~right)[0].tolist()
        wanted = "finite values of float32" if is_wide else "finite values"
        raise WireError(expected(field, wanted, f"{array[*index]} at {index}"))


def _check_episode(episode: Episode, num_envs: int) -> None:
    if not 0 <= episode.env < num_envs:
        raise WireError(expected("episodes.env", f"below {num_envs}", episode.env))
    if not math.isfinite(episode.episode_return):
        got = episode.episode_return
        raise WireError(expected("episodes.episode_return", "a finite number", got))


def encode_actions(group: int, actions: np.ndarray, spec: EnvSpec) -> pb.ActResponse:
    """Returns the message that carries the actions [E] of a group."""
    return pb.ActResponse(
        actions=pb.Actions(group=group, actions=_to_bytes(actions, spec.action.dtype))
    )


def decode_actions(message: pb.Actions, hello: Hello) -> tuple[int, np.ndarray]:
    """Returns (group, actions [E, *action.shape]); raises WireError."""
    if message.group >= len(hello.group_sizes):
        raise WireError(expected("group", f"below {len(hello.group_sizes)}", message.group))
    action = hello.spec.action
    shape = (hello.group_sizes[message.group], *action.shape)
    return message.group, _from_bytes(message.actions, action.dtype, shape, "actions")


def encode_hello(hello: Hello) -> pb.ActRequest:
    """Returns the first message of an actor's stream."""
    return pb.ActRequest(
        hello=pb.Hello(
            protocol_version=PROTOCOL_VERSION,
            run_id=hello.run_id,
            role=hello.role,
            group_sizes=hello.group_sizes,
            spec=_encode_spec(hello.spec),
        )
    )


def decode_hello(message: pb.Hello) -> Hello:
    """Returns the introduction in `message`.

    Raises:
      WireError: an empty run id, an unknown role, or group sizes out of bounds.
      SpecError: a spec that cannot be served.
    """
    sizes = tuple(message.group_sizes)
    if not sizes or min(sizes) < 1 or sum(sizes) > MAX_ENVS_PER_ACTOR:
        wanted = f"one or more sizes of at least 1, {MAX_ENVS_PER_ACTOR} in all"
        raise WireError(expected("group_sizes", wanted, _abridged(sizes)))
    if message.role not in pb.Role.values():
        raise WireError(expected("role", f"one of {pb.Role.keys()}", message.role))
    if not message.run_id:
        raise WireError(expected("run_id", "a non-empty string", "''"))
    if len(message.run_id) > MAX_RUN_ID_LENGTH:
        wanted = f"at most {MAX_RUN_ID_LENGTH} characters"
        raise WireError(expected("run_id", wanted, len(message.run_id)))
    spec = _decode_spec(message.spec)
    largest = max(sizes) * sum(leaf.num_bytes for leaf in spec.observations)
    if largest > MAX_MESSAGE_BYTES:
        wanted = f"groups whose observations take at most {MAX_MESSAGE_BYTES} bytes"
        raise WireError(expected("group_sizes", wanted, largest))
    return Hello(run_id=message.run_id, role=message.role, group_sizes=sizes, spec=spec)


def _abridged(sizes: tuple[int, ...]) -> str:
    """Returns a short text, however many sizes an unknown client announces."""
    return str(sizes) if len(sizes) <= 8 else f"{len(sizes)} of them, {sum(sizes)} in all"


def _encode_spec(spec: EnvSpec) -> pb.EnvSpec:
    return pb.EnvSpec(
        observations=[_encode_array_spec(leaf) for leaf in spec.observations],
        action=_encode_array_spec(spec.action),
    )


def _decode_spec(message: pb.EnvSpec) -> EnvSpec:
    return EnvSpec(
        observations=tuple(_decode_array_spec(leaf) for leaf in message.observations),
        action=_decode_array_spec(message.action),
    )


def _encode_array_spec(spec: ArraySpec) -> pb.ArraySpec:
    return pb.ArraySpec(**dataclasses.asdict(spec))


def _decode_array_spec(message: pb.ArraySpec) -> ArraySpec:
    return ArraySpec(
        name=message.name,
        dtype=message.dtype,
        shape=tuple(message.shape),
        num_values=message.num_values,
        minimum=message.minimum,
        maximum=message.maximum,
    )
