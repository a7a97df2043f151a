"""Gymnasium spaces -> `seed.specs`, and batched observations -> arrays in that order.

Used by an `EnvGroup`, in the actor's main thread: once for the spec, then on every step.
Leaves the meaning of the numbers to the learner.
"""

from typing import Any

import numpy as np
from gymnasium import spaces

from seed.errors import SpecError, expected
from seed.specs import ArraySpec, EnvSpec

# Keys that lead from a nested observation to one leaf: ("camera", 0).
Path = tuple[str | int, ...]

_SUPPORTED = "Box, Discrete, MultiBinary, MultiDiscrete, or Dict and Tuple of these"


class SpaceAdapter:
    """Translates between the spaces of one vectorised environment and its spec.

    A plain observation space is one leaf called "observation"; the leaves of Dict
    and Tuple spaces are named by their path ("camera/left", "0/position").
    Discrete values that start elsewhere than at 0 are shifted to 0 .. n - 1.
    """

    def __init__(self, observation_space: spaces.Space, action_space: spaces.Space) -> None:
        leaves = leaves_of(observation_space)
        self.spec = EnvSpec(
            observations=tuple(observation_spec(path, space) for path, space in leaves),
            action=_action_spec(action_space),
        )
        assert isinstance(action_space, spaces.Discrete)
        self._action_start = int(action_space.start)
        self._leaves = [
            (path, leaf.dtype, int(space.start) if isinstance(space, spaces.Discrete) else 0)
            for (path, space), leaf in zip(leaves, self.spec.observations, strict=True)
        ]

    def flatten(self, observation: Any) -> tuple[np.ndarray, ...]:
        """Returns the leaves [E, *shape] of a batched observation, in spec order."""
        arrays = []
        for path, dtype, start in self._leaves:
            array = observation
            for key in path:
                array = array[key]
            array = np.asarray(array, dtype)
            arrays.append(array - start if start else array)
        return tuple(arrays)

    def env_actions(self, actions: np.ndarray) -> np.ndarray:
        """Returns int64 [E] contiguous actions as the environment numbers them.

        Raises:
          SpecError: an action out of range. ALE would wait forever for a valid one.
        """
        num_values = self.spec.action.num_values
        actions = np.ascontiguousarray(actions, np.int64)
        if actions.min() < 0 or actions.max() >= num_values:
            raise SpecError(expected("actions", f"0 .. {num_values - 1}", actions.tolist()))
        return actions + self._action_start if self._action_start else actions


def space_of(env: Any, attribute: str) -> spaces.Space:
    """Returns `env.observation_space` or `env.action_space`; raises SpecError if it is none."""
    space = getattr(env, attribute, None)
    if isinstance(space, spaces.Space):
        return space
    got = "None" if space is None else f"{type(space).__module__}.{type(space).__name__} {space}"
    raise SpecError(expected(attribute, "a space of Gymnasium (gymnasium.spaces)", got))


def leaves_of(space: spaces.Space, path: Path = ()) -> list[tuple[Path, spaces.Space]]:
    """Returns path and space of each leaf, in the order in which they travel."""
    if isinstance(space, spaces.Dict):
        children = list(space.spaces.items())
    elif isinstance(space, spaces.Tuple):
        children = list(enumerate(space.spaces))
    else:
        return [(path, space)]
    return [leaf for key, child in children for leaf in leaves_of(child, (*path, key))]


def observation_spec(path: Path, space: spaces.Space) -> ArraySpec:
    """Returns the spec of one leaf; raises SpecError if it cannot travel."""
    name = "/".join(map(str, path)) or "observation"
    if isinstance(space, spaces.Discrete):
        return ArraySpec(name=name, dtype="int64", num_values=int(space.n))
    if isinstance(space, spaces.Box):
        low, high = space.low, space.high
    elif isinstance(space, spaces.MultiBinary):
        low, high = np.zeros(1), np.ones(1)
    elif isinstance(space, spaces.MultiDiscrete):
        low, high = space.start, space.start + space.nvec - 1
    else:
        raise SpecError(expected(f"observations[{name!r}]", _SUPPORTED, type(space).__name__))
    assert space.dtype is not None and space.shape is not None
    return ArraySpec(
        name=name,
        dtype=space.dtype.name,
        shape=tuple(space.shape),
        # An empty array has no bounds. ArraySpec refuses its shape below.
        minimum=float(low.min()) if low.size else 0,
        maximum=float(high.max()) if high.size else 0,
    )


def _action_spec(space: spaces.Space) -> ArraySpec:
    if not isinstance(space, spaces.Discrete):
        raise SpecError(expected("action", "a Discrete space", space))
    return ArraySpec(name="action", dtype="int64", num_values=int(space.n))
