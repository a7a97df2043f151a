"""Arrays become messages and arrays again, bit for bit, and every refusal names its field."""

import dataclasses
import re
from typing import Any

import numpy as np
import pytest

from seed import wire
from seed.errors import SpecError, WireError
from seed.framing import parse_request
from seed.pb import inference_pb2 as pb
from seed.specs import DTYPES, ArraySpec, EnvSpec

SCREEN = ArraySpec(name="camera/left", dtype="uint8", shape=(4, 5), minimum=0, maximum=255)
SPEED = ArraySpec(name="0/speed", dtype="float32", shape=(3,))
GEAR = ArraySpec(name="0/gear", dtype="int64", num_values=6)
ACTION = ArraySpec(name="action", dtype="int64", num_values=4)
SPEC = EnvSpec(observations=(SCREEN, SPEED, GEAR), action=ACTION)
HELLO = wire.Hello(run_id="run-1", role=pb.ROLE_TRAIN, group_sizes=(2, 3), spec=SPEC)


def random_leaf(leaf: ArraySpec, num_envs: int, rng: np.random.Generator) -> np.ndarray:
    """Returns values that the leaf may hold."""
    values = rng.integers(0, leaf.num_values or 2, (num_envs, *leaf.shape))
    if leaf.dtype.startswith("float"):
        values = rng.standard_normal(values.shape)
    return values.astype(leaf.dtype)


def random_outputs(spec: EnvSpec = SPEC, *, group: int = 1) -> wire.EnvOutputs:
    """Returns a step of three environments with every combination of flags."""
    rng = np.random.default_rng(0)
    return wire.EnvOutputs(
        group=group,
        observations=tuple(random_leaf(leaf, 3, rng) for leaf in spec.observations),
        rewards=rng.standard_normal(3).astype(np.float32),
        is_first=np.array([True, False, False]),
        terminated=np.array([False, True, True]),
        truncated=np.array([False, False, True]),
        episodes=[wire.Episode(2, -1.5, 7), wire.Episode(0, 1e9, 2**31)],
        failures=2,
    )


def assert_same(got: wire.EnvOutputs, expected: wire.EnvOutputs) -> None:
    """Asserts the same dtypes, shapes and bits."""
    for field in dataclasses.fields(wire.EnvOutputs):
        a, b = getattr(got, field.name), getattr(expected, field.name)
        if field.name == "observations":
            assert [x.dtype for x in a] == [x.dtype.newbyteorder("<") for x in b]
            assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
        elif isinstance(b, np.ndarray):
            assert a.dtype == b.dtype
            assert np.array_equal(a, b)
        else:
            assert a == b


def message_of(outputs: wire.EnvOutputs, spec: EnvSpec = SPEC) -> pb.EnvOutputs:
    """Returns the step as any protobuf library reads it."""
    return pb.ActRequest.FromString(wire.encode_env_outputs(outputs, spec)).env_outputs


def encoded(**changes: Any) -> pb.EnvOutputs:
    """Returns the message of `random_outputs` with some fields replaced."""
    message = message_of(random_outputs())
    for name, value in changes.items():
        if isinstance(value, list):
            del getattr(message, name)[:]
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)
    return message


def through_the_wire(message: Any) -> Any:
    """Returns the message as the other side parses it."""
    return type(message).FromString(message.SerializeToString())


def test_step_comes_back_as_it_was() -> None:
    """Nested leaves, every flag and the games that ended come back."""
    outputs = random_outputs()
    data = wire.encode_env_outputs(outputs, SPEC)
    assert_same(wire.decode_env_outputs(message_of(outputs), HELLO), outputs)
    request = parse_request(data)
    step = wire.decode_env_outputs(request.message.env_outputs, HELLO, request.observations)
    assert_same(step, outputs)


@pytest.mark.parametrize("shape", [(), (2, 3)], ids=["scalar", "matrix"])
@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_every_dtype_comes_back_as_it_was(dtype: str, shape: tuple[int, ...]) -> None:
    """The bytes may come from a machine of either byte order."""
    leaf = ArraySpec(name="observation", dtype=dtype, shape=shape)
    spec = EnvSpec(observations=(leaf,), action=ACTION)
    hello = dataclasses.replace(HELLO, spec=spec)
    outputs = random_outputs(spec)
    big = tuple(x.astype(x.dtype.newbyteorder(">")) for x in outputs.observations)
    for observations in (outputs.observations, big):
        sent = dataclasses.replace(outputs, observations=observations)
        assert_same(wire.decode_env_outputs(message_of(sent, spec), hello), outputs)


def test_bytes_are_little_endian_in_c_order() -> None:
    """The contract says so for actors in any language; rows of a strided array travel too."""
    leaf = ArraySpec(name="observation", dtype="int32", shape=(2,))
    spec = EnvSpec(observations=(leaf,), action=ACTION)
    strided = np.array([[1, 256], [2, 3], [4, 5]], ">i4")[::-1]
    outputs = dataclasses.replace(random_outputs(spec), observations=(strided,))
    message = message_of(outputs, spec)
    numbers = (4, 5, 2, 3, 1, 256)
    assert message.observations[0] == b"".join(n.to_bytes(4, "little") for n in numbers)
    assert message.step_flags == bytes([1, 2, 2 + 4])


def test_rewards_travel_as_float32() -> None:
    """The environment may compute them in any dtype."""
    outputs = dataclasses.replace(random_outputs(), rewards=np.array([1, 2, 3]))
    message = message_of(outputs)
    assert message.rewards == np.array([1, 2, 3], "<f4").tobytes()


def test_decoded_arrays_are_views_of_the_message() -> None:
    """Nothing is copied, and no code can write to the message by mistake."""
    outputs = wire.decode_env_outputs(encoded(), HELLO)
    for array in (*outputs.observations, outputs.rewards):
        assert not array.flags.owndata
        assert not array.flags.writeable


REFUSED_STEPS: dict[str, tuple[dict[str, Any], str]] = {
    "group": ({"group": 2}, "group: expected below 2, got 2"),
    "too_few_leaves": ({"observations": [bytes(60)]}, "observations: expected 3 leaves, got 1"),
    "too_many_leaves": ({"observations": [b""] * 4}, "observations: expected 3 leaves, got 4"),
    "short_leaf": (
        {"observations": [bytes(60), bytes(35), bytes(24)]},
        r"observations\['0/speed'\]: expected 36 bytes for float32 \[3, 3\], got 35 bytes",
    ),
    "long_leaf": (
        {"observations": [bytes(80), bytes(36), bytes(24)]},
        r"observations\['camera/left'\]: expected 60 bytes for uint8 \[3, 4, 5\], got 80 bytes",
    ),
    "short_rewards": ({"rewards": b""}, r"rewards: expected 12 bytes for float32 \[3\], got 0"),
    "long_flags": ({"step_flags": bytes(4)}, r"step_flags: expected 3 bytes for uint8 \[3\]"),
    "unknown_flag": ({"step_flags": b"\0\10\0"}, "step_flags: expected sums of 0b111, got 8"),
    "highest_flag": ({"step_flags": b"\0\0\x80"}, "step_flags: expected sums of 0b111, got 128"),
    "infinite_reward": (
        {"rewards": np.array([0, np.inf, 0], "<f4").tobytes()},
        r"rewards: expected finite values, got inf at \[1\]",
    ),
    "nan_in_a_leaf": (
        {"observations": [bytes(60), np.full(9, np.nan, "<f4").tobytes(), bytes(24)]},
        r"observations\['0/speed'\]: expected finite values, got nan at \[0, 0\]",
    ),
    "value_too_large": (
        {"observations": [bytes(60), bytes(36), np.array([0, 6, 1], "<i8").tobytes()]},
        r"observations\['0/gear'\]: expected values in 0 .. 5, got 0 .. 6",
    ),
    "negative_value": (
        {"observations": [bytes(60), bytes(36), np.array([0, -1, 1], "<i8").tobytes()]},
        r"observations\['0/gear'\]: expected values in 0 .. 5, got -1 .. 1",
    ),
    "episode_env": (
        {"episodes": [pb.Episode(env=3, episode_return=1, length=1)]},
        "episodes.env: expected below 3, got 3",
    ),
}


@pytest.mark.parametrize("name", REFUSED_STEPS)
def test_malformed_step_is_refused(name: str) -> None:
    """The error names what was expected and what came."""
    changes, message = REFUSED_STEPS[name]
    with pytest.raises(WireError, match=f"^{message}"):
        wire.decode_env_outputs(encoded(**changes), HELLO)


@pytest.mark.parametrize("value", [1e39, -1e300, np.inf, np.nan])
def test_float64_leaf_holds_no_more_than_float32(value: float) -> None:
    """The message names leaf, row, index and value; networks would compute with infinity."""
    spec = EnvSpec(
        observations=(ArraySpec(name="pose", dtype="float64", shape=(2,)),), action=SPEC.action
    )
    outputs = random_outputs(spec)
    largest = float(np.finfo(np.float32).max)
    outputs.observations[0][:] = [-largest, largest]
    wire.check_values(outputs, spec)
    outputs.observations[0][2, 1] = value
    wanted = f"observations['pose']: expected finite values of float32, got {value} at [2, 1]"
    with pytest.raises(WireError, match=re.escape(wanted)):
        wire.check_values(outputs, spec)


def test_group_of_another_size_is_refused() -> None:
    """Each group has its own number of environments."""
    with pytest.raises(WireError, match="expected .* got "):
        wire.decode_env_outputs(encoded(group=0), HELLO)


def test_leaves_that_do_not_fit_the_spec_are_a_bug() -> None:
    """The actor itself made both, so the error is no user error."""
    outputs = dataclasses.replace(random_outputs(), observations=())
    with pytest.raises(ValueError):
        wire.encode_env_outputs(outputs, SPEC)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_actions_come_back_as_they_were(dtype: str) -> None:
    """They have the action's dtype, for any dtype of the policy's actions."""
    spec = dataclasses.replace(SPEC, action=dataclasses.replace(ACTION, dtype=dtype))
    actions = np.array([3, 0, 2], np.int64)
    message = through_the_wire(wire.encode_actions(1, actions, spec)).actions
    group, got = wire.decode_actions(message, dataclasses.replace(HELLO, spec=spec))
    assert (group, got.tolist(), got.dtype) == (1, [3, 0, 2], np.dtype(dtype))


@pytest.mark.parametrize(
    ("message", "refusal"),
    [
        (pb.Actions(group=2, actions=bytes(24)), "group: expected below 2, got 2"),
        (pb.Actions(group=1, actions=bytes(16)), r"actions: expected 24 bytes for int64 \[3\]"),
    ],
    ids=["group", "size"],
)
def test_malformed_actions_are_refused(message: pb.Actions, refusal: str) -> None:
    """An actor checks the answers of its learner in the same way."""
    with pytest.raises(WireError, match=f"^{refusal}"):
        wire.decode_actions(message, HELLO)


@pytest.mark.parametrize("role", [pb.ROLE_TRAIN, pb.ROLE_EVAL])
def test_hello_comes_back_as_it_was(role: pb.Role) -> None:
    """The whole spec comes back: nested names, shapes, bounds, infinities."""
    hello = dataclasses.replace(HELLO, role=role)
    message = through_the_wire(wire.encode_hello(hello)).hello
    assert message.protocol_version == wire.PROTOCOL_VERSION
    assert wire.decode_hello(message) == hello


def hello_message(**changes: Any) -> pb.Hello:
    """Returns the message of `HELLO` with some fields replaced."""
    message = wire.encode_hello(HELLO).hello
    sizes = changes.pop("group_sizes", None)
    if sizes is not None:
        del message.group_sizes[:]
        message.group_sizes.extend(sizes)
    for name, value in changes.items():
        setattr(message, name, value)
    return message


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"group_sizes": []}, r"group_sizes: expected one or more sizes .* got \(\)"),
        ({"group_sizes": [1, 0]}, r"group_sizes: expected .* got \(1, 0\)"),
        ({"group_sizes": [wire.MAX_ENVS_PER_ACTOR, 1]}, "group_sizes: expected .* 65536 in all"),
        ({"role": 5}, "role: expected one of .*ROLE_TRAIN.* got 5"),
        ({"run_id": ""}, "run_id: expected a non-empty string, got ''"),
    ],
    ids=["no_group", "empty_group", "too_many_envs", "role", "run_id"],
)
def test_malformed_hello_is_refused(changes: dict[str, Any], refusal: str) -> None:
    """The refusal comes before any slot is given away."""
    with pytest.raises(WireError, match=f"^{refusal}"):
        wire.decode_hello(hello_message(**changes))


def test_hello_with_a_spec_that_cannot_be_served_is_refused() -> None:
    """The spec's own checks refuse it."""
    message = wire.encode_hello(HELLO).hello
    message.spec.observations[1].dtype = "object"
    with pytest.raises(SpecError, match="^0/speed.dtype: expected one of"):
        wire.decode_hello(message)
    del message.spec.observations[:]
    with pytest.raises(SpecError, match="^observations: expected at least one leaf"):
        wire.decode_hello(message)
