"""Observations of several environments -> one batch, checked against their space.

Called by `SyncVectorEnv` on every step. The batch is checked as a whole, since a check of each
environment would cost several percent of a cheap one's step. Only if the batch is not in order
is each observation looked at.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from actors.answers import FLOAT32_MAX, WrongFormError, WrongValueError, described
from actors.spaces import Path, leaves_of, observation_spec
from seed.errors import SpecError, expected


class ObservationReader:
    """Batches and checks the observations of E environments with one space.

    An observation that differs from its space only in its dtype is cast, if no number changes:
    a list of integers within 0 .. 255 fits uint8, 0.5 and 256 do not.
    """

    def __init__(self, space: spaces.Space, num_envs: int) -> None:
        """Raises SpecError: the space has a leaf that cannot travel."""
        self._space = space
        self._leaves = [_Leaf(path, leaf, num_envs) for path, leaf in leaves_of(space)]
        self._is_plain = not isinstance(space, (spaces.Dict, spaces.Tuple))

    def batch(self, observations: Sequence[Any]) -> Any | None:
        """Returns a new batch, nested like the space; None if an observation needs `read`."""
        return self._collected(lambda leaf: leaf.stack(observations))

    def read(self, observation: Any) -> Any:
        """Returns one environment's observation, cast to its space.

        Raises:
          WrongFormError: a missing leaf, a wrong shape, or numbers that the dtype cannot hold.
          WrongValueError: a number that is not finite, or none of a discrete space's values.
        """
        return _nested(self._space, iter([leaf.read(observation) for leaf in self._leaves]))

    def converted(self, batch: Any) -> Any | None:
        """Returns a batch that a vectorised environment made, in the space's own dtypes.

        Returns None if an observation in it needs `read`.
        """
        return self._collected(lambda leaf: leaf.converted(_at(batch, leaf.path)))

    def shares_memory(self, batch: Any, other: Any) -> bool:
        """Whether a leaf of the two batches lies in the same memory."""
        return any(
            np.may_share_memory(_at(batch, leaf.path), _at(other, leaf.path))
            for leaf in self._leaves
        )

    def copied(self, batch: Any) -> Any:
        """Returns a copy of a batch."""
        return _nested(self._space, iter([_at(batch, leaf.path).copy() for leaf in self._leaves]))

    def split(self, batch: Any) -> list[Any]:
        """Returns the observations in a batch that a vectorised environment made, unchecked.

        Raises:
          SpecError: a leaf is missing, or has not one row for each environment.
        """
        columns = [leaf.rows(batch) for leaf in self._leaves]
        return [_nested(self._space, iter(row)) for row in zip(*columns, strict=True)]

    def zeros(self) -> Any:
        """Returns an observation of zeros."""
        return _nested(self._space, iter([leaf.zeros() for leaf in self._leaves]))

    def row(self, batch: Any, index: int) -> Any:
        """Returns the observation of one environment in a batch."""
        return _nested(self._space, iter([_at(batch, leaf.path)[index] for leaf in self._leaves]))

    def _collected(self, array_of: Callable[["_Leaf"], np.ndarray | None]) -> Any | None:
        """Returns one array for each leaf; None if `array_of` returns none, or raises."""
        arrays = []
        try:
            for leaf in self._leaves:
                array = array_of(leaf)
                if array is None:
                    return None
                arrays.append(array)
        # What a strange observation raises depends on what it is; `read` finds out.
        except Exception:
            return None
        return arrays[0] if self._is_plain else _nested(self._space, iter(arrays))

    def unknown_keys(self, observation: Any) -> list[str]:
        """Returns the keys that an observation has in addition to those of the space."""
        return [*_unknown_keys(self._space, observation, "")]


class _Leaf:
    """One array of an observation."""

    def __init__(self, path: Path, space: spaces.Space, num_envs: int) -> None:
        spec = observation_spec(path, space)
        self.path = path
        self._field = f"observations[{spec.name!r}]"
        self._shape = spec.shape
        self._dtype = np.dtype(spec.dtype)
        self._batch_shape = (num_envs, *spec.shape)
        self._is_float = self._dtype.kind == "f"
        # Without this NumPy would turn 256 into 0 on the way from int16 to uint8.
        self._casting: Any = "same_kind" if self._is_float else "safe"
        self._is_box = isinstance(space, spaces.Box)
        self._is_discrete = isinstance(space, spaces.Discrete)
        low, high = spec.minimum, spec.maximum
        if isinstance(space, spaces.Discrete):
            low, high = int(space.start), int(space.start + space.n - 1)
        self._set_bounds(low, high)

    def stack(self, observations: Sequence[Any]) -> np.ndarray | None:
        """Returns [E, *shape]; None, or some exception, if an observation needs `read`."""
        if self.path:
            observations = [_at(row, self.path) for row in observations]
        # Takes a third of the time of np.stack for small arrays, and no more for large ones.
        return self.converted(np.array(observations))

    def holds(self, array: np.ndarray) -> bool:
        """Whether all numbers are finite and within the bounds. NaN compares as False."""
        if self._needs_no_check:
            return True
        if self._is_unbounded_float32:  # the quicker of the two checks of small arrays
            return bool(np.isfinite(array).all())
        return bool(array.min() >= self._low and array.max() <= self._high)

    def converted(self, values: Any) -> np.ndarray | None:
        """Returns `values` as [E, *shape]; None, or some exception, if they need `read`."""
        array = np.asarray(values)
        if array.shape != self._batch_shape:
            return None
        if array.dtype != self._dtype:
            with np.errstate(over="ignore"):  # `holds` finds the infinity
                array = array.astype(self._dtype, casting=self._casting)
        return array if self.holds(array) else None

    def rows(self, batch: Any) -> list[Any]:
        """Returns this leaf of each observation of a batch; raises SpecError."""
        wanted = f"{self._dtype}{list(self._batch_shape)}"
        try:
            column = _at(batch, self.path)
            if len(column) == self._batch_shape[0]:
                return list(column)
        except (KeyError, IndexError, TypeError) as error:
            raise SpecError(expected(self._field, wanted, _missing(batch))) from error
        raise SpecError(expected(self._field, wanted, described(column)))

    def zeros(self) -> np.ndarray:
        """Returns [*shape] of zeros, or of a Discrete space's first value."""
        return np.full(self._shape, self._low if self._is_discrete else 0, self._dtype)

    def read(self, observation: Any) -> np.ndarray:
        """Returns [*shape], cast without loss; raises as `ObservationReader.read`."""
        array = self._as_numbers(observation)
        self._check_finite(array)
        with np.errstate(all="ignore"):
            fitting = array.astype(self._dtype).reshape(self._shape)
        if not self._is_float and not (fitting == array.reshape(self._shape)).all():
            index = _first(fitting != array.reshape(self._shape))
            got = f"{array.dtype} {array.reshape(self._shape)[index].item()}"
            raise WrongFormError(expected(self._element(index), str(self._dtype), got))
        if not self.holds(fitting):
            self._check_bounds(fitting)
        return fitting

    def _as_numbers(self, observation: Any) -> np.ndarray:
        wanted = f"{self._dtype}{list(self._shape)}"
        try:
            value = _at(observation, self.path)
        except (KeyError, IndexError, TypeError) as error:
            raise WrongFormError(expected(self._field, wanted, _missing(observation))) from error
        try:
            array = np.asarray(value)
        except Exception as error:  # a ragged list, for example
            raise WrongFormError(expected(self._field, wanted, described(value))) from error
        is_one = array.size == 1 and self._shape in ((), (1,))
        if array.dtype.kind not in "biuf" or not (array.shape == self._shape or is_one):
            raise WrongFormError(expected(self._field, wanted, described(_plain(value, array))))
        return array

    def _check_finite(self, array: np.ndarray) -> None:
        if array.dtype.kind != "f":
            return
        wrong = ~(np.abs(array) <= FLOAT32_MAX)
        if wrong.any():
            index = _first(wrong)
            wanted = "a finite number of float32"
            raise WrongValueError(expected(self._element(index), wanted, array[index].item()))

    def _check_bounds(self, array: np.ndarray) -> None:
        """Refuses what is no value of an enumeration. Warns once of what a Box does not hold."""
        index = _first((array < self._low) | (array > self._high) | ~np.isfinite(array))
        wanted, got = f"{self._low:g} .. {self._high:g}", array[index].item()
        if not self._is_box or not np.isfinite(got):
            raise WrongValueError(expected(self._element(index), wanted, got))
        logging.warning(
            "%s: the observation space has %s, got %s; such values are passed on",
            *(self._element(index), wanted, got),
        )
        self._set_bounds(-np.inf, np.inf)

    def _set_bounds(self, low: float, high: float) -> None:
        most = FLOAT32_MAX
        if self._dtype.kind in "iu":
            limits = np.iinfo(self._dtype)
            self._needs_no_check = low <= limits.min and high >= limits.max
        else:
            self._needs_no_check = self._dtype.kind == "b"
        self._low, self._high = max(low, -most), min(high, most)
        self._is_unbounded_float32 = self._dtype == np.float32 and low <= -most and high >= most

    def _element(self, index: tuple[int, ...]) -> str:
        return self._field + (str(list(index)) if index else "")


def _at(observation: Any, path: Path) -> Any:
    for key in path:
        observation = observation[key]
    return observation


def _nested(space: spaces.Space, arrays: Iterator[np.ndarray]) -> Any:
    """Returns the arrays of the leaves, nested as in the space."""
    if isinstance(space, spaces.Dict):
        return {key: _nested(child, arrays) for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_nested(child, arrays) for child in space.spaces)
    return next(arrays)


def _first(wrong: np.ndarray) -> tuple[int, ...]:
    """Returns the index of the first True element."""
    return tuple(int(i) for i in np.argwhere(wrong)[0])


def _missing(observation: Any) -> str:
    if isinstance(observation, dict):
        return f"no such key in {sorted(map(str, observation))}"
    return described(observation)


def _plain(value: Any, array: np.ndarray) -> Any:
    """Returns what describes a value best: its numbers' type and shape, or the value itself."""
    return array if array.dtype.kind in "biuf" else value


def _unknown_keys(space: spaces.Space, observation: Any, prefix: str) -> Iterator[str]:
    if isinstance(space, spaces.Dict) and isinstance(observation, dict):
        for key, value in observation.items():
            if key in space.spaces:
                yield from _unknown_keys(space.spaces[key], value, f"{prefix}{key}/")
            else:
                yield f"{prefix}{key}"
