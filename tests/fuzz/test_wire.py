"""Decoding any bytes gives a sound record or an error of ours."""

import contextlib
import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seed import wire
from seed.errors import SeedError
from seed.framing import parse_request
from seed.pb import inference_pb2 as pb
from seed.specs import DTYPES, ArraySpec, EnvSpec
from tests.fuzz.profiles import QUICK

SPEC = EnvSpec(
    observations=(
        ArraySpec(name="screen", dtype="uint8", shape=(2, 3), minimum=0, maximum=255),
        ArraySpec(name="speed", dtype="float16", shape=(2,)),
        ArraySpec(name="gear", dtype="int64", num_values=6),
    ),
    action=ArraySpec(name="action", dtype="int64", num_values=4),
)
HELLO = wire.Hello(run_id="run", role=pb.ROLE_TRAIN, group_sizes=(1, 2), spec=SPEC)

UINT32 = st.one_of(st.integers(0, 9), st.integers(0, 2**32 - 1))
DOUBLE = st.one_of(st.sampled_from([0.0, 1.0, 255.0]), st.floats())
LEAF_BYTES = [24, 12, 4, 8, 16, 6]


def build(message: type, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Returns a strategy for protobuf messages, each field sometimes absent."""
    return st.fixed_dictionaries({}, optional=fields).map(lambda values: message(**values))


ARRAY_SPECS = build(
    pb.ArraySpec,
    name=st.one_of(st.sampled_from(["a", "b", "action"]), st.text()),
    dtype=st.one_of(st.sampled_from(sorted(DTYPES)), st.text(max_size=8)),
    shape=st.one_of(st.just([]), st.lists(UINT32, max_size=80)),
    num_values=UINT32,
    minimum=DOUBLE,
    maximum=DOUBLE,
)
HELLOS = build(
    pb.Hello,
    run_id=st.text(),
    role=st.integers(0, 3),
    group_sizes=st.one_of(st.just([2, 3]), st.lists(UINT32, max_size=20)),
    spec=build(pb.EnvSpec, observations=st.lists(ARRAY_SPECS, max_size=3), action=ARRAY_SPECS),
)
STEPS = build(
    pb.EnvOutputs,
    group=UINT32,
    observations=st.lists(
        st.sampled_from(LEAF_BYTES).flatmap(lambda n: st.binary(min_size=n, max_size=n)),
        max_size=4,
    ),
    rewards=st.binary(min_size=4, max_size=8),
    step_flags=st.binary(max_size=2),
    episodes=st.lists(
        build(pb.Episode, env=UINT32, episode_return=DOUBLE, length=UINT32), max_size=3
    ),
)


def valid_step() -> bytes:
    """Returns a message that is accepted."""
    zeros = [np.zeros((2, *leaf.shape), leaf.dtype) for leaf in SPEC.observations]
    flags = np.zeros(2, bool)
    outputs = wire.EnvOutputs(
        group=1,
        observations=tuple(zeros),
        rewards=np.ones(2, np.float32),
        is_first=flags,
        terminated=flags,
        truncated=~flags,
        episodes=[wire.Episode(1, 2.5, 3)],
    )
    return wire.encode_env_outputs(outputs, SPEC)


def assert_sound(outputs: wire.EnvOutputs) -> None:
    """Asserts all that the code behind the wire relies on."""
    size = HELLO.group_sizes[outputs.group]
    for leaf, array in zip(SPEC.observations, outputs.observations, strict=True):
        assert array.shape == (size, *leaf.shape)
        assert array.dtype == np.dtype(leaf.dtype).newbyteorder("<")
        assert array.dtype.kind != "f" or np.isfinite(array).all()
        assert not leaf.is_discrete or (array.min() >= 0 and array.max() < leaf.num_values)
    assert outputs.rewards.shape == (size,) and np.isfinite(outputs.rewards).all()
    for flags in (outputs.is_first, outputs.terminated, outputs.truncated):
        assert flags.shape == (size,) and flags.dtype == bool
    assert len(outputs.episodes) <= size
    assert all(episode.env < size for episode in outputs.episodes)
    assert np.isfinite([episode.episode_return for episode in outputs.episodes]).all()


@QUICK
@given(STEPS)
def test_step_is_sound_or_refused(message: pb.EnvOutputs) -> None:
    """The fields make sense one by one, and seldom together."""
    with contextlib.suppress(SeedError):
        assert_sound(wire.decode_env_outputs(message, HELLO))


@QUICK
@given(st.integers(0, 2**32), st.integers(1, 8), st.booleans())
def test_mutated_step_is_sound_or_refused(rng_seed: int, num_changes: int, cuts: bool) -> None:
    """A valid message has a few bytes changed, or lacks its end."""
    rng = np.random.default_rng(rng_seed)
    data = bytearray(valid_step())
    for _ in range(num_changes):
        data[rng.integers(len(data))] = rng.integers(256)
    if cuts:
        del data[rng.integers(len(data)) :]
    with contextlib.suppress(SeedError):
        request = parse_request(bytes(data))
        step = request.message.env_outputs
        assert_sound(wire.decode_env_outputs(step, HELLO, request.observations))


@QUICK
@given(HELLOS)
def test_hello_is_sound_or_refused(message: pb.Hello) -> None:
    """A hello that is accepted is encoded back to the same fields, and its spec matches itself."""
    try:
        hello = wire.decode_hello(message)
    except SeedError:
        return
    assert wire.decode_hello(wire.encode_hello(hello).hello) == hello
    hello.spec.check_matches(hello.spec)
    for leaf in hello.spec.observations:
        np.zeros((1, *leaf.shape), leaf.dtype)


@QUICK
@given(ARRAY_SPECS)
def test_array_spec_is_sound_or_refused(message: pb.ArraySpec) -> None:
    """Every leaf is tested alone here, since most hellos already fail at another field."""
    try:
        spec = ArraySpec(
            name=message.name,
            dtype=message.dtype,
            shape=tuple(message.shape),
            num_values=message.num_values,
            minimum=message.minimum,
            maximum=message.maximum,
        )
    except SeedError:
        return
    assert dataclasses.replace(spec) == spec
    assert np.zeros(spec.shape, spec.dtype).nbytes == spec.num_bytes


@QUICK
@given(st.binary(max_size=64), st.integers(0, 3))
def test_actions_are_sound_or_refused(data: bytes, group: int) -> None:
    """An actor checks the answers of its learner in the same way."""
    try:
        group, actions = wire.decode_actions(pb.Actions(group=group, actions=data), HELLO)
    except SeedError:
        return
    assert actions.shape == (HELLO.group_sizes[group],)


def test_the_fuzz_starts_from_a_message_that_is_taken() -> None:
    """Otherwise all its mutants would be refused for the same reason."""
    message = pb.ActRequest.FromString(valid_step())
    assert_sound(wire.decode_env_outputs(message.env_outputs, HELLO))
    with pytest.raises(AssertionError):
        assert_sound(
            dataclasses.replace(wire.decode_env_outputs(message.env_outputs, HELLO), group=0)
        )
