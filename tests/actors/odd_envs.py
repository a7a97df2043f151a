"""Small environments with one peculiarity each, registered as "odd/*"."""

import threading
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

# Gymnasium's types do not know bool, the dtype of MinAtar's observations.
_BOOLEANS = spaces.Box(0, 1, (2, 2), bool)  # pyright: ignore[reportCallIssue, reportArgumentType]


class NestedDict(gymnasium.Env):
    """A Dict inside a Dict; counts its steps and is truncated after 7."""

    observation_space = spaces.Dict(
        {
            "clock": spaces.Discrete(8),
            "body": spaces.Dict({"speed": spaces.Box(-1, 1, (3,), np.float64)}),
        }
    )
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self._steps = 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        self._steps += 1
        return self._observe(), 0.1 * self._steps, False, self._steps == 7, {}

    def _observe(self) -> dict[str, Any]:
        return {
            "clock": self._steps,
            "body": {"speed": self.np_random.uniform(-1, 1, 3)},
        }


class TupleOfKinds(gymnasium.Env):
    """One leaf of each supported kind; actions and clock start at 1; 4-step episodes."""

    observation_space = spaces.Tuple(
        (
            spaces.Discrete(5, start=1),
            spaces.MultiBinary(4),
            spaces.MultiDiscrete([3, 5]),
            _BOOLEANS,
        )
    )
    action_space = spaces.Discrete(3, start=1)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self._steps = 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        assert self.action_space.contains(action), action
        self._steps += 1
        return self._observe(), float(action), self._steps == 4, False, {}

    def _observe(self) -> tuple[Any, ...]:
        random = self.np_random
        return (
            self._steps + 1,
            random.integers(0, 2, 4, np.int8),
            random.integers(0, [3, 5]),
            random.integers(0, 2, (2, 2)).astype(bool),
        )


class Fragile(gymnasium.Env):
    """Counts its steps from 1; raises at step `fails_at`; never ends an episode by itself."""

    observation_space = spaces.Box(0, np.inf, (), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, fails_at: int, ends_at: int = 0, fails_in_reset: bool = False) -> None:
        self._fails_at, self._ends_at = fails_at, ends_at
        self._fails_in_reset = fails_in_reset
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        if self._fails_in_reset:
            raise RuntimeError("no reset today")
        self._steps = 0
        return np.float32(0), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        self._steps += 1
        if self._steps == self._fails_at:
            raise RuntimeError("the simulator fell over")
        return np.float32(self._steps), 1.0, self._steps == self._ends_at, False, {}


class NeverCloses(Fragile):
    """Its `close` never returns."""

    def close(self) -> None:
        threading.Event().wait()


class OldStep(gymnasium.Env):
    """Speaks the API before Gymnasium: step returns 4 values."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> Any:
        return np.zeros(1, np.float32), 0.0, False, {}


class OldReset(OldStep):
    """Speaks the API before Gymnasium: reset takes no seed and returns no info."""

    def reset(self) -> Any:  # type: ignore[override]
        return np.zeros(1, np.float32)


for _name, _class in {
    "NestedDict": NestedDict,
    "TupleOfKinds": TupleOfKinds,
    "Fragile": Fragile,
    "NeverCloses": NeverCloses,
    "OldStep": OldStep,
    "OldReset": OldReset,
}.items():
    gymnasium.register(f"odd/{_name}-v0", entry_point=_class)
