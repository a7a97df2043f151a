"""A vectorised environment that steps from its first environments on, while it makes the others.

Used by an `EnvGroup`, in the actor's main thread, for environments that take long to make and
to seed. Leaves making and stepping a part to the environment class that it is given.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space

# A step or reset of one part, as Gymnasium returns it:
# observation, rewards, terminated, truncated, info.
_Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]

# The entry of a part's info that an `EnvGroup` reads.
_INFOS = ("is_first",)

_FIRST_PART = 2
# While ale-py makes a part, no Python code runs: 16 games take 2.7 s.
_LARGEST_PART = 16


def part_sizes(num_envs: int) -> list[int]:
    """Returns how many environments each part has: 2, 6, 16, 16, ..., `num_envs` in all.

    Few parts cost little: each takes about 1 % of the processor time of a step. A small first
    part steps soon.
    """
    sizes: list[int] = []
    while (made := sum(sizes)) < num_envs:
        wanted = min(3 * made, _LARGEST_PART) or _FIRST_PART
        sizes.append(min(wanted, num_envs - made))
    return sizes


class GrowingVectorEnv(VectorEnv):
    """E environments in NEXT_STEP autoreset, made part by part, one part a step.

    A thread resets a part while the main thread makes the next one. So parts join at the same
    steps in every run, and each environment plays as if all had been made at once. Until an
    environment has joined, its rows hold a copy of the first environment's observation:

                        reset   step 1   step 2         step 3          step 4
        main thread                      makes part 1   makes part 2
        other thread                                    resets part 1   resets part 2
        row of part 0   o0      o1       o2             o3              o4
        row of part 1   copy    copy     copy           o0 (joins)      o1
        is_waiting      1       1        1              1               0

    The first step makes nothing, so that its result is there soon. `info["is_waiting"]`,
    bool [E], is there as long as an environment waits or joins. These rows are the first of an
    episode and follow from no action. Observations are arrays.
    """

    def __init__(self, make_part: Callable[[int], VectorEnv], num_envs: int) -> None:
        """Makes the first part.

        Args:
          make_part: returns so many environments; resetting them may run in another thread.
          num_envs: E.
        """
        super().__init__()
        self.num_envs = num_envs
        self._make_part = make_part
        self._sizes_to_come = deque(part_sizes(num_envs))
        first = make_part(self._sizes_to_come.popleft())
        self.metadata = first.metadata
        self.single_observation_space = first.single_observation_space
        self.single_action_space = first.single_action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._parts: list[VectorEnv] = []
        self._shares: list[slice] = []
        self.num_ready = 0
        """Environments that have joined."""
        self._join(first)
        self._seed: int | None = None
        self._made: VectorEnv | None = None
        self._first_rows: Future[np.ndarray] | None = None  # of the part in `_made`
        self._thread = ThreadPoolExecutor(1, "environment-reset")
        self._has_stepped = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Resets the environments that have joined, the i-th with `seed` + i.

        The others are reset when they join, also with `seed` + i.
        """
        self._seed = seed if seed is not None else self._seed
        self._has_stepped = False
        observations = [
            part.reset(seed=None if seed is None else seed + share.start, options=options)[0]
            for part, share in zip(self._parts, self._shares, strict=True)
        ]
        observation = np.concatenate(observations)
        return _padded(observation, self.num_envs), {}

    def step(self, actions: np.ndarray) -> _Rows:
        """Steps the environments that have joined, then makes the next part if one is missing."""
        rows = _joined(
            [
                part.step(actions[share])
                for part, share in zip(self._parts, self._shares, strict=True)
            ]
        )
        if self._made is None and not self._sizes_to_come:
            return rows
        return self._with_waiting(rows)

    def close_extras(self, **kwargs: Any) -> None:
        """Closes every part, after the reset that may be going on."""
        self._thread.shutdown()
        for part in [*self._parts, *([self._made] if self._made else [])]:
            part.close()

    def _with_waiting(self, rows: _Rows) -> _Rows:
        """Returns `rows` of the joined environments, and those of the others behind them."""
        num_stepped = self.num_ready
        observation, rewards, terminated, truncated, info = rows
        first_rows = self._grow() if self._has_stepped else None
        self._has_stepped = True
        if first_rows is not None:
            observation = np.concatenate([observation, first_rows])
        size = self.num_envs
        info = {name: _zero_padded(info[name], size) for name in _INFOS if name in info}
        info["is_waiting"] = np.arange(size) >= num_stepped
        flags = _zero_padded(terminated, size), _zero_padded(truncated, size)
        return _padded(observation, size), _zero_padded(rewards, size), *flags, info

    def _grow(self) -> np.ndarray | None:
        """Makes the next part. Returns the first rows of the part before it, which joins now."""
        made = self._make_part(self._sizes_to_come.popleft()) if self._sizes_to_come else None
        first_rows = None
        if self._made is not None and self._first_rows is not None:
            first_rows = self._first_rows.result()
            self._join(self._made)
        self._made = made
        if made is not None:
            seed = None if self._seed is None else self._seed + self.num_ready
            self._first_rows = self._thread.submit(lambda: made.reset(seed=seed)[0])
        return first_rows

    def _join(self, part: VectorEnv) -> None:
        self._parts.append(part)
        self._shares.append(slice(self.num_ready, self.num_ready + part.num_envs))
        self.num_ready += part.num_envs


def _joined(rows: list[_Rows]) -> _Rows:
    """Returns the rows of several parts as those of one."""
    if len(rows) == 1:
        return rows[0]
    *columns, infos = zip(*rows, strict=True)
    info = {name: np.concatenate([i[name] for i in infos]) for name in _INFOS if name in infos[0]}
    observation, rewards, terminated, truncated = map(np.concatenate, columns)
    return observation, rewards, terminated, truncated, info


def _padded(observation: np.ndarray, size: int) -> np.ndarray:
    """Returns [size, ...]: the observation, and copies of its first row."""
    return np.concatenate([observation, observation[:1].repeat(size - len(observation), axis=0)])


def _zero_padded(column: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([column, np.zeros(size - len(column), column.dtype)])
