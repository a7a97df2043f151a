"""A vectorised environment of another package, whose wrong answers stay out of the batch.

Used by an `EnvGroup`, in the actor's main thread. Several environments in one object cannot be
replaced one by one; environments that are objects of their own are in `vectorisation.py`.
"""

from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper

from actors.answers import FLOAT32_MAX, WrongAnswerError, described, read_step
from actors.failures import FailureCount, GroupRecord
from actors.observations import ObservationReader
from actors.spaces import space_of
from seed.errors import SpecError, expected


class _Rows(NamedTuple):
    """One step of E environments."""

    observation: Any
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    faults: dict[int, WrongAnswerError]
    """What is wrong with the answer of an environment, by its row."""


class CheckedVectorEnv(VectorWrapper):
    """E environments in NEXT_STEP autoreset, whose wrong answers end episodes as truncated.

    The object does not know that an episode was cut, and goes on. The row after the cut is the
    first of a new episode, in the middle of the object's own one:

        row             t        t+1      t+2      t+3
        object's reward r5       NaN      r7       r8
        observation     o5       o5       o7       o8
        reward          r5       0        0        r8
        truncated       0        1        0        0
        is_first        0        0        1        0

    If the object's episode ends with such a first row (t+2), the next row, which follows from
    a reset, is cut in turn: an episode cannot both begin and end in one row.
    """

    def __init__(self, env: VectorEnv, *, first_index: int = 0) -> None:
        """Checks the answers of `env`, whose rows messages number from `first_index` on.

        Raises:
          SpecError: `env` has no spaces of Gymnasium, or a leaf that cannot travel.
        """
        super().__init__(env)
        space = space_of(env, "single_observation_space")
        space_of(env, "single_action_space")
        num_envs = env.num_envs
        self._reader = ObservationReader(space, num_envs)
        self._record = GroupRecord()
        self._counts = [
            FailureCount(first_index + i, self._record, "its episode is cut")
            for i in range(num_envs)
        ]
        self._last: Any = None
        self._reuses_arrays = False
        self._steps = np.zeros(num_envs, np.int64)
        self._was_done = np.zeros(num_envs, bool)
        # Rows that the last step cut, and rows that the next step must cut.
        self._was_cut = np.zeros(num_envs, bool)
        self._owes_cut = np.zeros(num_envs, bool)

    @property
    def failures(self) -> int:
        """Wrong answers so far."""
        return self._record.failures

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Resets all environments; again, without a seed, if one of them has a wrong answer."""
        for flags in (self._was_done, self._was_cut, self._owes_cut):
            flags.fill(False)
        self._steps.fill(0)
        while True:
            observation, info = self._answer("reset", 2, seed=seed, options=options)
            seed = None
            nothing = np.zeros(self.num_envs)
            flags = nothing.astype(bool)
            rows = self._read(observation, nothing, flags, flags)
            for row, fault in rows.faults.items():
                self._counts[row].add(fault, "reset", 0)
            if not rows.faults:
                self._record.seen_right.add("reset")
                self._keep(rows.observation)
                return rows.observation, info

    def step(
        self, actions: np.ndarray
    ) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Steps all environments.

        Raises:
          SpecError: an answer that has the wrong form as a whole.
          EnvironmentFailedError: too many wrong answers in a row of one environment.
        """
        observation, rewards, terminated, truncated, info = self._answer("step", 5, actions)
        rows = self._read(observation, rewards, terminated, truncated)
        is_first = self._was_done
        if "is_first" in info:
            is_first = (info["is_first"] & ~self._owes_cut) | self._was_cut
        self._steps = np.where(is_first, 0, self._steps + 1)
        for row, fault in rows.faults.items():
            self._counts[row].add(fault, "step", int(self._steps[row]))
        rows, cut = self._with_cuts(rows, is_first)
        done = rows.terminated | rows.truncated
        if self.failures:
            for row in np.flatnonzero(done & ~cut):
                self._counts[row].forgive()
        if not rows.faults:
            self._record.seen_right.add("step")
        self._keep(rows.observation)
        self._was_done, self._was_cut = done, cut
        if "is_first" in info:
            info = {**info, "is_first": is_first}
        return rows.observation, rows.rewards, rows.terminated, rows.truncated, info

    def _answer(self, call: str, num_values: int, *args: Any, **kwargs: Any) -> Any:
        answer = getattr(self.env, call)(*args, **kwargs)
        if not isinstance(answer, (tuple, list)) or len(answer) != num_values:
            wanted = f"{num_values} values, as in Gymnasium"
            raise SpecError(expected(f"{call}()", wanted, described(answer)))
        return answer

    def _keep(self, observation: Any) -> None:
        """Keeps what may have to be repeated."""
        if self._last is not None and not self._reuses_arrays:
            self._reuses_arrays = self._reader.shares_memory(observation, self._last)
        self._last = self._reader.copied(observation) if self._reuses_arrays else observation

    def _with_cuts(self, rows: _Rows, is_first: np.ndarray) -> tuple[_Rows, np.ndarray]:
        """Returns the rows to pass on, and which of them end an episode that was cut, bool [E]."""
        wrong = np.zeros(self.num_envs, bool)
        wrong[list(rows.faults)] = True
        done = rows.terminated | rows.truncated
        needs_cut = wrong | self._owes_cut
        cut = needs_cut & ~is_first
        self._owes_cut = is_first & (wrong | done)
        if not (needs_cut.any() or self._owes_cut.any()):
            return rows, cut
        observations = [
            self._reader.row(self._last if wrong[i] or cut[i] else rows.observation, i)
            for i in range(self.num_envs)
        ]
        passed = rows._replace(
            observation=self._reader.batch(observations),
            rewards=np.where(cut | is_first, 0, rows.rewards),
            terminated=rows.terminated & ~cut & ~is_first,
            truncated=(rows.truncated & ~is_first) | cut,
        )
        return passed, cut

    def _read(self, observation: Any, rewards: Any, terminated: Any, truncated: Any) -> _Rows:
        """Returns the answer as arrays, with what is wrong with single rows of it."""
        converted = self._reader.converted(observation)
        if converted is not None and self._are_usual(rewards, terminated, truncated):
            return _Rows(converted, rewards, terminated, truncated, {})
        columns = {"rewards": rewards, "terminated": terminated, "truncated": truncated}
        lists = [self._column(name, column) for name, column in columns.items()]
        raw = self._reader.split(observation)
        rows: list[tuple] = []
        faults: dict[int, WrongAnswerError] = {}
        for i, (row, *numbers) in enumerate(zip(raw, *lists, strict=True)):
            try:
                _, reward, *flags = read_step((row, *numbers, {}))
                rows.append((self._reader.read(row), reward, *flags))
            except WrongAnswerError as error:
                faults[i] = error
                rows.append((self._reader.zeros(), 0.0, False, False))
        observations, *numbers = zip(*rows, strict=True)
        reward, is_terminated, is_truncated = (np.array(column) for column in numbers)
        batch = self._reader.batch(observations)
        return _Rows(batch, reward, is_terminated, is_truncated, faults)

    def _are_usual(self, rewards: Any, *flags: Any) -> bool:
        """Whether all rewards are finite numbers and all flags are bool, [E] each."""
        for array, kinds in ((rewards, "iuf"), *((flag, "b") for flag in flags)):
            if not isinstance(array, np.ndarray) or array.dtype.kind not in kinds:
                return False
            if array.shape != (self.num_envs,):
                return False
        return bool(rewards.min() >= -FLOAT32_MAX and rewards.max() <= FLOAT32_MAX)

    def _column(self, name: str, column: Any) -> list[Any]:
        """Returns one value for each environment; raises SpecError if there are not as many."""
        try:
            array = np.asarray(column)
        except ValueError:
            array = np.asarray(column, object)
        if array.ndim == 0 or len(array) != self.num_envs:
            wanted = f"an array [{self.num_envs}], one for each environment"
            raise SpecError(expected(name, wanted, described(column)))
        return list(array)
