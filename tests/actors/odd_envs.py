"""Small environments with one peculiarity each, registered as "odd/*"."""

import threading
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

# Gymnasium's types do not know bool, the dtype of MinAtar's observations.
_BOOLEANS = spaces.Box(0, 1, (2, 2), bool)  # pyright: ignore[reportCallIssue, reportArgumentType]


class HeldReset(gymnasium.Env):
    """Its resets last until the test sets `released`."""

    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(2)
    released = threading.Event()

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        assert self.released.wait(60)
        return 0, {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        return 1, 0.0, False, False, {}


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


class WrongAnswer(gymnasium.Env):
    """Well behaved, but one copy of it gives one wrong answer, of a kind in `WRONG_STEPS`.

    An episode has 20 steps. The observation is (steps, steps).
    """

    observation_space = spaces.Dict(
        {
            "x": spaces.Box(-np.inf, np.inf, (2,), np.float64),
            "pixels": spaces.Box(0, 255, (2,), np.uint8),
            "square": spaces.Discrete(30),
        }
    )
    action_space = spaces.Discrete(2)
    copies = 0
    """Made so far in this process."""

    def __init__(self, kind: str, at: int = 3, copy: int | None = None) -> None:
        """Copy number `copy`, or every copy, is wrong at step `at`; in its reset if that is 0."""
        WrongAnswer.copies += 1
        self._kind, self._at = kind, at
        self._is_wrong = copy in (None, WrongAnswer.copies)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        self._steps = 0
        return self._answer()[0], {}

    def step(self, action: int) -> Any:
        self._steps += 1
        return self._answer()

    def _answer(self) -> Any:
        n = self._steps
        observation = {"x": np.full(2, n, float), "pixels": np.full(2, n, np.uint8), "square": n}
        answer = (observation, 1.0, n == 20, False, {})
        if self._is_wrong and self._steps == self._at:
            return WRONG_STEPS[self._kind](*answer)
        return answer


def _with(**leaves: Any) -> Any:
    """Returns what changes leaves of an observation, and leaves out those that are None."""

    def change(observation: dict, *rest: Any) -> Any:
        changed = {**observation, **leaves}
        return {key: leaf for key, leaf in changed.items() if leaf is not None}, *rest

    return change


# Kind -> what makes a wrong answer of a step out of a right one.
WRONG_STEPS: dict[str, Any] = {
    "raises": lambda *answer: 1 / 0,
    "nan reward": lambda o, r, *rest: (o, float("nan"), *rest),
    "infinite reward": lambda o, r, *rest: (o, np.float32(np.inf), *rest),
    "huge reward": lambda o, r, *rest: (o, -1e39, *rest),
    "no reward": lambda o, r, *rest: (o, None, *rest),
    "two rewards": lambda o, r, *rest: (o, np.ones(2), *rest),
    "word as reward": lambda o, r, *rest: (o, "1.0", *rest),
    "complex reward": lambda o, r, *rest: (o, 1j, *rest),
    "no flag": lambda o, r, t, u, i: (o, r, None, u, i),
    "nan flag": lambda o, r, t, u, i: (o, r, t, float("nan"), i),
    "two flags": lambda o, r, t, u, i: (o, r, np.zeros(2, bool), u, i),
    "word as flag": lambda o, r, t, u, i: (o, r, "False", u, i),
    "four values": lambda o, r, t, u, i: (o, r, t, i),
    "six values": lambda o, r, t, u, i: (o, r, t, u, i, i),
    "nothing": lambda *answer: None,
    "a dict": lambda o, r, t, u, i: {"obs": o, "reward": r, "done": t, "cut": u, "info": i},
    "no observation": lambda o, *rest: (None, *rest),
    "nan observation": _with(x=np.array([0, np.nan])),
    "infinite observation": _with(x=np.array([np.inf, 0])),
    "huge observation": _with(x=np.array([0, 1e39])),
    "nan at the end": lambda o, r, t, u, i: (_with(x=[np.nan, 0])(o)[0], r, True, u, i),
    "missing key": _with(pixels=None),
    "short leaf": _with(x=np.zeros(1)),
    "leaf with one more axis": _with(x=np.zeros((2, 1))),
    "ragged leaf": _with(x=[[0.0], [0.0, 1.0]]),
    "words": _with(x=np.array(["1", "2"])),
    "no leaf": _with(x=[None, None]),
    "too large for uint8": _with(pixels=np.array([256, 0])),
    "negative for uint8": _with(pixels=np.array([0, -1], np.int16)),
    "fraction for uint8": _with(pixels=[0, 0.5]),
    "value that does not exist": _with(square=30),
    "fraction as value": _with(square=1.5),
    "no dict": lambda o, *rest: (o["x"], *rest),
}


class NanReward(gymnasium.Env):
    """CartPole's spaces; one copy in this process gives one reward of NaN, at its third step."""

    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = spaces.Discrete(2)
    copies = 0

    def __init__(self, copy: int = 5) -> None:
        NanReward.copies += 1
        self._is_wrong = copy in (0, NanReward.copies)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self._steps = 0
        return np.zeros(4, np.float32), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        self._steps += 1
        reward = float("nan") if self._is_wrong and self._steps == 3 else 1.0
        return self.np_random.random(4).astype(np.float32), reward, self._steps == 20, False, {}


for _name, _class in {
    "HeldReset": HeldReset,
    "NestedDict": NestedDict,
    "TupleOfKinds": TupleOfKinds,
    "Fragile": Fragile,
    "NeverCloses": NeverCloses,
    "OldStep": OldStep,
    "OldReset": OldReset,
    "WrongAnswer": WrongAnswer,
    "NanReward": NanReward,
}.items():
    gymnasium.register(f"odd/{_name}-v0", entry_point=_class)
