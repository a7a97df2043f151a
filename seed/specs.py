"""Shapes, dtypes and bounds of the observations that environments emit and of their actions.

Shared by both sides and by the wire. Nested observation spaces are flat here: a
tuple of named leaves in a fixed order. Turning a Gymnasium space into a spec is
the actor's work (`actors/spaces.py`); this file knows only NumPy.
"""

import dataclasses
import math

import numpy as np

from seed.errors import SpecError, expected

# Element types that may travel: NumPy and torch both compute with them.
DTYPES = frozenset(
    {
        "bool",
        "uint8",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "float32",
        "float64",
    }
)

# A leaf larger than this is a mistake in a space, not an observation.
MAX_LEAF_BYTES = 64 * 1024 * 1024

# The first actor's spec decides which networks the learner builds. These limits bound their
# cost, and the sizes that NumPy and torch are asked for.
MAX_LEAVES = 256
MAX_NAME_LENGTH = 200
MAX_DIMENSIONS = 8
MAX_NUM_VALUES = 1_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArraySpec:
    """One array of one environment, without the leading environment dimension."""

    name: str
    """Path of the leaf in its space, "observation" for a plain space."""
    dtype: str
    """NumPy name of the element type, one of `DTYPES`."""
    shape: tuple[int, ...] = ()
    """Shape of one environment's element."""
    num_values: int = 0
    """Values of a discrete space (0 .. num_values - 1); 0 where not discrete."""
    minimum: float = -math.inf
    """Smallest element over the whole array."""
    maximum: float = math.inf
    """Largest element over the whole array."""

    def __post_init__(self) -> None:
        if not self.name:
            raise SpecError(expected("name", "a non-empty leaf name", repr(self.name)))
        if len(self.name) > MAX_NAME_LENGTH:
            wanted = f"at most {MAX_NAME_LENGTH} characters"
            raise SpecError(expected("name", wanted, len(self.name)))
        if self.dtype not in DTYPES:
            raise SpecError(expected(f"{self.name}.dtype", f"one of {sorted(DTYPES)}", self.dtype))
        if len(self.shape) > MAX_DIMENSIONS:
            wanted = f"at most {MAX_DIMENSIONS} dimensions"
            raise SpecError(expected(f"{self.name}.shape", wanted, len(self.shape)))
        if any(size < 1 for size in self.shape):
            raise SpecError(expected(f"{self.name}.shape", "positive sizes", self.shape))
        if self.num_bytes > MAX_LEAF_BYTES:
            raise SpecError(
                expected(f"{self.name}.shape", f"at most {MAX_LEAF_BYTES} bytes", self.num_bytes)
            )
        self._check_values()

    def _check_values(self) -> None:
        if self.num_values < 0 or (self.num_values and self.shape):
            raise SpecError(
                expected(f"{self.name}.num_values", "0, or a scalar discrete leaf", self.num_values)
            )
        if self.num_values > MAX_NUM_VALUES:
            raise SpecError(
                expected(f"{self.name}.num_values", f"at most {MAX_NUM_VALUES}", self.num_values)
            )
        if self.num_values and not np.issubdtype(self.dtype, np.integer):
            raise SpecError(
                expected(f"{self.name}.dtype", "an integer for a discrete leaf", self.dtype)
            )
        for bound in ("minimum", "maximum"):
            if math.isnan(getattr(self, bound)):
                raise SpecError(expected(f"{self.name}.{bound}", "a number", "nan"))

    @property
    def num_bytes(self) -> int:
        """Bytes of one environment's element."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def is_discrete(self) -> bool:
        return self.num_values > 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvSpec:
    """The observations that an environment emits, and the actions that it takes."""

    observations: tuple[ArraySpec, ...]
    """Observation leaves, in the order in which they travel."""
    action: ArraySpec
    """The action of one environment."""

    def __post_init__(self) -> None:
        if not self.observations:
            raise SpecError(expected("observations", "at least one leaf", "none"))
        if len(self.observations) > MAX_LEAVES:
            got = len(self.observations)
            raise SpecError(expected("observations", f"at most {MAX_LEAVES} leaves", got))
        names = [leaf.name for leaf in self.observations]
        if len(set(names)) != len(names):
            raise SpecError(expected("observations", "unique leaf names", names))

    def check_matches(self, other: "EnvSpec") -> None:
        """Raises SpecError that names the first field in which `other` differs."""
        mine = {leaf.name: leaf for leaf in self.observations}
        theirs = {leaf.name: leaf for leaf in other.observations}
        if list(mine) != list(theirs):
            raise SpecError(expected("observations", f"leaves {list(mine)}", list(theirs)))
        for name, leaf in mine.items():
            _check_same_array(f"observations[{name!r}]", leaf, theirs[name])
        _check_same_array("action", self.action, other.action)


def _check_same_array(field: str, mine: ArraySpec, theirs: ArraySpec) -> None:
    for attribute in dataclasses.fields(ArraySpec):
        want, got = getattr(mine, attribute.name), getattr(theirs, attribute.name)
        if want != got:
            raise SpecError(expected(f"{field}.{attribute.name}", want, got))
