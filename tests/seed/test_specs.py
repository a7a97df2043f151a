"""Specs refuse what cannot be served, and name the field in which two of them differ."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from seed.errors import SpecError
from seed.specs import DTYPES, MAX_LEAF_BYTES, ArraySpec, EnvSpec

SCREEN = ArraySpec(name="screen", dtype="uint8", shape=(84, 84), minimum=0, maximum=255)
SPEED = ArraySpec(name="body/speed", dtype="float32", shape=(3,))
ACTION = ArraySpec(name="action", dtype="int64", num_values=4)
SPEC = EnvSpec(observations=(SCREEN, SPEED), action=ACTION)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_every_dtype_is_known_to_numpy(dtype: str) -> None:
    """The name is the same on both sides of the wire."""
    assert np.dtype(dtype).name == dtype
    assert ArraySpec(name="x", dtype=dtype, shape=(3, 2)).num_bytes == 6 * np.dtype(dtype).itemsize


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": ""}, "name: expected a non-empty leaf name"),
        ({"dtype": "object"}, "x.dtype: expected one of"),
        ({"dtype": "complex64"}, "x.dtype: expected one of"),
        ({"dtype": ""}, "x.dtype: expected one of"),
        ({"dtype": ">f4"}, "x.dtype: expected one of"),
        ({"shape": (3, 0)}, r"x.shape: expected positive sizes, got \(3, 0\)"),
        ({"shape": (-1,)}, r"x.shape: expected positive sizes, got \(-1,\)"),
        ({"num_values": -1}, "x.num_values: expected 0, or a scalar discrete leaf, got -1"),
        ({"num_values": 2, "shape": (3,)}, "x.num_values: expected 0, or a scalar discrete leaf"),
    ],
)
def test_array_that_cannot_be_served_is_refused(fields: dict[str, Any], message: str) -> None:
    """The error names the leaf and the field."""
    values: dict[str, Any] = {"name": "x", "dtype": "float32"} | fields
    with pytest.raises(SpecError, match=f"^{message}"):
        ArraySpec(**values)


def test_leaf_size_is_bounded() -> None:
    """The largest size is accepted, and one byte more is not."""
    ArraySpec(name="x", dtype="uint8", shape=(MAX_LEAF_BYTES,))
    with pytest.raises(SpecError, match=f"^x.shape: expected at most {MAX_LEAF_BYTES} bytes"):
        ArraySpec(name="x", dtype="uint8", shape=(MAX_LEAF_BYTES + 1,))
    with pytest.raises(SpecError, match="^x.shape"):
        ArraySpec(name="x", dtype="uint8", shape=(2**31, 2**31, 2**31))


def test_leaf_is_discrete_if_it_has_a_number_of_values() -> None:
    """A scalar without a number of values is an ordinary number."""
    assert ACTION.is_discrete
    assert not ArraySpec(name="x", dtype="int64").is_discrete


def test_spec_without_observations_is_refused() -> None:
    """An agent would have nothing to act on."""
    with pytest.raises(SpecError, match="^observations: expected at least one leaf, got none"):
        EnvSpec(observations=(), action=ACTION)


def test_two_leaves_of_one_name_are_refused() -> None:
    """An error could not tell them apart."""
    with pytest.raises(SpecError, match="^observations: expected unique leaf names"):
        EnvSpec(observations=(SCREEN, SCREEN), action=ACTION)


def test_equal_specs_match() -> None:
    """Infinite bounds match too."""
    SPEC.check_matches(EnvSpec(observations=(SCREEN, SPEED), action=ACTION))


DIFFERENCES: dict[str, Any] = {
    "dtype": "float64",
    "shape": (4,),
    "minimum": -1.0,
    "maximum": math.pi,
}


@pytest.mark.parametrize("field", DIFFERENCES)
def test_difference_in_an_observation_is_named(field: str) -> None:
    """The error names leaf and field, what was expected and what came."""
    other = dataclasses.replace(SPEED, **{field: DIFFERENCES[field]})
    with pytest.raises(SpecError) as caught:
        SPEC.check_matches(EnvSpec(observations=(SCREEN, other), action=ACTION))
    wanted, got = getattr(SPEED, field), DIFFERENCES[field]
    assert str(caught.value) == f"observations['body/speed'].{field}: expected {wanted}, got {got}"


def test_difference_in_the_action_is_named() -> None:
    """Another number of actions needs another policy head."""
    other = dataclasses.replace(SPEC, action=dataclasses.replace(ACTION, num_values=6))
    with pytest.raises(SpecError, match="^action.num_values: expected 4, got 6$"):
        SPEC.check_matches(other)


@pytest.mark.parametrize("leaves", [(SCREEN,), (SPEED, SCREEN)], ids=["missing", "order"])
def test_other_leaves_are_named(leaves: tuple[ArraySpec, ...]) -> None:
    """Buffers travel in the order of the spec, so the order counts too."""
    with pytest.raises(SpecError, match=r"^observations: expected leaves \['screen', 'body/speed'"):
        SPEC.check_matches(EnvSpec(observations=leaves, action=ACTION))


def test_every_field_of_an_array_is_compared() -> None:
    """A field that is added later must be compared too."""
    values: dict[str, Any] = {
        "name": "y",
        "dtype": "int8",
        "shape": (7,),
        "num_values": 3,
        "minimum": 1.0,
        "maximum": 2.0,
    }
    plain = ArraySpec(name="x", dtype="int32")
    assert values.keys() == {field.name for field in dataclasses.fields(ArraySpec)}
    for name, value in values.items():
        other = dataclasses.replace(plain, **{name: value})
        with pytest.raises(SpecError):
            dataclasses.replace(SPEC, observations=(plain,)).check_matches(
                dataclasses.replace(SPEC, observations=(other,))
            )
