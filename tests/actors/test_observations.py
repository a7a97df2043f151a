"""actors/observations.py casts and checks; test_vectorisation.py tries it with environments."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from actors.answers import WrongFormError, WrongValueError
from actors.observations import ObservationReader

_NESTED = spaces.Dict(
    {"a": spaces.Tuple((spaces.Discrete(3, start=1), spaces.Box(0, 9, (2,), np.uint8)))}
)


def test_batch_is_nested_like_the_space() -> None:
    """Dict and Tuple keep their form; each leaf becomes an array of its dtype."""
    rows = [{"a": (1, np.zeros(2, np.uint8))}, {"a": (3, np.ones(2, np.uint8))}]
    batch = ObservationReader(_NESTED, 2).batch(rows)
    assert batch is not None
    first, second = batch["a"]
    assert first.dtype == np.int64 and first.tolist() == [1, 3]
    assert second.dtype == np.uint8 and second.tolist() == [[0, 0], [1, 1]]


def test_batch_is_a_copy() -> None:
    """An environment may write into the array that it has returned."""
    reader = ObservationReader(spaces.Box(-9, 9, (1,), np.float32), 1)
    row = np.zeros(1, np.float32)
    batch = reader.batch([row])
    row[:] = 5
    assert batch == 0


@pytest.mark.parametrize(
    ("dtype", "value", "error"),
    [
        ("uint8", np.uint16(256), WrongFormError),
        ("int8", np.int64(-129), WrongFormError),
        ("int32", 2**40, WrongFormError),
        ("int64", np.uint64(2**63), WrongFormError),
        ("bool", 2, WrongFormError),
        ("int64", np.nan, WrongValueError),
        ("float16", 1e5, WrongValueError),
        ("float32", 1e39, WrongValueError),
        ("float64", -1e39, WrongValueError),
    ],
)
def test_number_that_its_dtype_cannot_hold_is_refused(
    dtype: str, value: Any, error: type[Exception]
) -> None:
    """No value wraps around or becomes infinite, whatever dtype it comes in."""
    space = spaces.Box(0, 1, (2,), np.dtype(dtype).type)
    reader = ObservationReader(space, 1)
    row = np.array([0, value])
    assert reader.batch([row]) is None
    with pytest.raises(error, match=r"observations\['observation'\]\[1\]: expected"):
        reader.read(row)


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (spaces.Discrete(3), 3),
        (spaces.Discrete(3, start=1), 0),
        (spaces.MultiBinary(2), [0, 2]),
        (spaces.MultiDiscrete([2, 4]), [0, 4]),
    ],
)
def test_value_that_an_enumeration_lacks_is_refused(space: spaces.Space, value: Any) -> None:
    """A network with one input for each value has none for it."""
    reader = ObservationReader(space, 1)
    assert reader.batch([value]) is None
    with pytest.raises(WrongValueError, match=r"expected \d \.\. \d, got"):
        reader.read(value)


def test_batch_of_other_dtype_is_converted() -> None:
    """A vectorised environment may return a batch in another dtype of the same kind."""
    reader = ObservationReader(spaces.Box(-np.inf, np.inf, (2,), np.float32), 2)
    batch = reader.converted(np.ones((2, 2)))
    assert batch is not None and batch.dtype == np.float32
    assert reader.converted(np.full((2, 2), 1e39)) is None
    assert reader.converted(np.ones((2, 3))) is None
