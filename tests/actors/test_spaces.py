"""actors/spaces.py turns spaces into specs, and batched observations into leaves."""

import math

import numpy as np
import pytest
from gymnasium import spaces

from actors.spaces import SpaceAdapter
from seed.errors import SpecError
from seed.specs import ArraySpec

_ACTION = spaces.Discrete(2)

# Gymnasium's types do not know bool, the dtype of MinAtar's observations.
_BOOLEANS = spaces.Box(0, 1, (2,), bool)  # pyright: ignore[reportCallIssue, reportArgumentType]


@pytest.mark.parametrize(
    ("space", "leaf"),
    [
        (
            spaces.Box(np.array([0, -2], np.float32), np.array([3, 1], np.float32)),
            ArraySpec(name="observation", dtype="float32", shape=(2,), minimum=-2, maximum=3),
        ),
        (
            spaces.Box(-np.inf, np.inf, (), np.float64),
            ArraySpec(name="observation", dtype="float64", minimum=-math.inf, maximum=math.inf),
        ),
        (
            spaces.Box(0, 255, (8, 8, 3), np.uint8),
            ArraySpec(name="observation", dtype="uint8", shape=(8, 8, 3), minimum=0, maximum=255),
        ),
        (
            _BOOLEANS,
            ArraySpec(name="observation", dtype="bool", shape=(2,), minimum=0, maximum=1),
        ),
        (
            spaces.Discrete(5, start=-2),
            ArraySpec(name="observation", dtype="int64", num_values=5),
        ),
        (
            spaces.MultiBinary([2, 3]),
            ArraySpec(name="observation", dtype="int8", shape=(2, 3), minimum=0, maximum=1),
        ),
        (
            spaces.MultiDiscrete([3, 7]),
            ArraySpec(name="observation", dtype="int64", shape=(2,), minimum=0, maximum=6),
        ),
    ],
    ids=lambda value: repr(value) if isinstance(value, spaces.Space) else "",
)
def test_plain_space_is_one_leaf(space: spaces.Space, leaf: ArraySpec) -> None:
    """The dtype, shape, values and bounds of each supported kind reach the spec."""
    assert SpaceAdapter(space, _ACTION).spec.observations == (leaf,)


def test_nested_spaces_are_named_by_their_path() -> None:
    """Dict keys and Tuple positions join with slashes, in the space's own order."""
    box = spaces.Box(0, 1, (1,), np.float32)
    space = spaces.Dict(
        {"camera": spaces.Dict({"left": box, "right": box}), "pose": spaces.Tuple((box, box))}
    )
    leaves = SpaceAdapter(space, _ACTION).spec.observations
    assert [leaf.name for leaf in leaves] == ["camera/left", "camera/right", "pose/0", "pose/1"]


def test_flatten_gives_leaves_in_spec_order() -> None:
    """A batched nested observation becomes arrays [E, *shape] in the order of the leaves."""
    space = spaces.Dict(
        {"a": spaces.Tuple((spaces.Discrete(3, start=1), spaces.Box(0, 9, (2,), np.uint8)))}
    )
    batched = {"a": (np.array([1, 3]), np.arange(4, dtype=np.uint8).reshape(2, 2))}
    position, pixels = SpaceAdapter(space, _ACTION).flatten(batched)
    np.testing.assert_array_equal(position, [0, 2])  # shifted to start at 0
    assert position.dtype == np.int64
    np.testing.assert_array_equal(pixels, [[0, 1], [2, 3]])


def test_actions_are_shifted_to_where_the_space_starts() -> None:
    """Action 0 of the learner is the first action of the environment."""
    adapter = SpaceAdapter(_ACTION, spaces.Discrete(3, start=5))
    assert adapter.spec.action == ArraySpec(name="action", dtype="int64", num_values=3)
    np.testing.assert_array_equal(adapter.env_actions(np.array([0, 2])), [5, 7])


@pytest.mark.parametrize("actions", [[0, 3], [-1, 0]])
def test_action_out_of_range_is_refused(actions: list[int]) -> None:
    """The error names the field and the range."""
    with pytest.raises(SpecError, match=r"actions: expected 0 \.\. 2"):
        SpaceAdapter(_ACTION, spaces.Discrete(3)).env_actions(np.array(actions))


@pytest.mark.parametrize(
    "action",
    [spaces.Box(-1, 1, (2,)), spaces.MultiDiscrete([2, 2]), spaces.Dict({"a": _ACTION})],
    ids=lambda space: type(space).__name__,
)
def test_action_space_other_than_discrete_is_refused(action: spaces.Space) -> None:
    """The error says what is supported and what the environment has."""
    with pytest.raises(SpecError, match="action: expected a Discrete space, got"):
        SpaceAdapter(_ACTION, action)


def test_unsupported_observation_leaf_is_refused_by_name() -> None:
    """The error names the leaf's path and its kind."""
    space = spaces.Dict({"mission": spaces.Text(10)})
    with pytest.raises(SpecError, match=r"observations\['mission'\]: expected Box.*got Text"):
        SpaceAdapter(space, _ACTION)


def test_unsupported_dtype_is_refused_by_name() -> None:
    """The wire has no uint64; the error names the leaf."""
    with pytest.raises(SpecError, match=r"observation.dtype: expected one of"):
        SpaceAdapter(spaces.Box(0, 9, (1,), np.uint64), _ACTION)
