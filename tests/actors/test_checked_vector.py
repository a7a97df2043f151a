"""actors/checked_vector.py keeps wrong rows of a vectorised environment out of the batch."""

import logging
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from actors.checked_vector import CheckedVectorEnv
from actors.envs import make_group
from actors.failures import MAX_FAILURES_IN_A_ROW
from actors.group import EnvGroup
from seed.env_config import EnvConfig
from seed.errors import EnvironmentFailedError, SpecError
from seed.wire import EnvOutputs

NAN = float("nan")


class Counting(VectorEnv):
    """Two environments that count their steps, observed as (count,); episodes of `length`.

    `change` may replace a step's five values; it gets them and the number of the step.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    num_envs = 2
    single_observation_space = spaces.Box(0, np.inf, (1,), np.float32)
    single_action_space = spaces.Discrete(2)

    def __init__(self, change: Any = lambda answer, step: answer, length: int = 100) -> None:
        self._change, self._length = change, length
        self._steps = 0
        self._counts = np.zeros(2, np.float32)

    def reset(self, **_: Any) -> tuple[Any, dict]:
        self._counts[:] = 0
        return self._counts[:, None].copy(), {}

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        self._steps += 1
        self._counts = np.where(self._counts == self._length, 0, self._counts + 1)
        rewards = np.where(self._counts == 0, 0, 1.0)
        done, none = self._counts == self._length, np.zeros(2, bool)
        observation = self._counts[:, None].astype(np.float32)
        return self._change((observation, rewards, done, none, {}), self._steps)


def _nan_reward(step: int) -> Any:
    def change(answer: Any, at: int) -> Any:
        if at == step:
            answer[1][1] = NAN
        return answer

    return change


def _rows(env: VectorEnv, num_steps: int) -> dict[str, list]:
    """Returns what the second environment's rows hold, [T]."""
    group = EnvGroup(CheckedVectorEnv(env, first_index=4), index=0, rng_seed=1)
    rows: list[EnvOutputs] = [group.reset()]
    rows += [group.step(np.zeros(2, np.int64)) for _ in range(num_steps)]
    columns = {
        name: [getattr(row, name)[1].item() for row in rows]
        for name in ("rewards", "is_first", "terminated", "truncated")
    }
    columns["observations"] = [row.observations[0][1].item() for row in rows]
    columns["episodes"] = [tuple(episode)[1:] for row in rows for episode in row.episodes]
    assert all(row.observations[0][0] == t for t, row in enumerate(rows) if t < 5)
    return columns


def test_right_answers_pass_unchanged() -> None:
    """A whole episode has the rows that the object gave."""
    rows = _rows(Counting(length=5), 7)
    assert rows["observations"] == [0, 1, 2, 3, 4, 5, 0, 1]
    assert rows["terminated"] == [False] * 5 + [True] + [False] * 2
    assert rows["is_first"] == [True] + [False] * 5 + [True, False]
    assert not any(rows["truncated"])


def test_row_with_a_wrong_value_ends_its_episode(caplog: pytest.LogCaptureFixture) -> None:
    """It repeats the last observation; the next row is the first of a new episode."""
    with caplog.at_level(logging.WARNING):
        rows = _rows(Counting(_nan_reward(3)), 5)
    assert rows["observations"] == [0, 1, 2, 2, 4, 5]
    assert rows["rewards"] == [0, 1, 1, 0, 0, 1]
    assert rows["truncated"] == [False, False, False, True, False, False]
    assert rows["is_first"] == [True, False, False, False, True, False]
    assert rows["episodes"] == [(2.0, 3)]
    assert [record.message for record in caplog.records] == [
        "environment 5 gave a wrong answer at step 3 of its episode and its episode is cut "
        "(1 times so far): reward: expected a finite number of float32, got nan"
    ]


def test_wrong_row_at_the_objects_own_end_needs_no_second_cut() -> None:
    """The object resets by itself in the next row, which is first for both."""
    rows = _rows(Counting(_nan_reward(4), length=4), 6)
    assert rows["observations"] == [0, 1, 2, 3, 3, 0, 1]
    assert rows["truncated"] == [False] * 4 + [True] + [False] * 2
    assert rows["is_first"] == [True, *[False] * 4, True, False]
    assert not any(rows["terminated"])


def test_end_of_the_objects_episode_in_a_first_row_is_cut_in_the_next() -> None:
    """No row is both the first and the last of an episode, and no episode runs over a reset."""
    rows = _rows(Counting(_nan_reward(3), length=4), 7)
    assert rows["observations"] == [0, 1, 2, 2, 4, 4, 1, 2]
    assert rows["truncated"] == [False] * 3 + [True, False, True, False, False]
    assert rows["is_first"] == [True, False, False, False, True, False, True, False]
    assert rows["rewards"] == [0, 1, 1, 0, 0, 0, 0, 1]
    assert not any(rows["terminated"])


def _broken_from(step: int) -> Any:
    def change(answer: Any, at: int) -> Any:
        if at >= step:
            answer[0][1] = NAN
        return answer

    return change


def test_row_that_stays_wrong_ends_the_group_with_its_name() -> None:
    """The limit in a row is that of environments that are replaced."""
    wanted = (
        rf"environment 5 .*for the {MAX_FAILURES_IN_A_ROW + 1}th time in a row: "
        r"observations\['observation'\]\[0\]: expected a finite number of float32, got nan"
    )
    with pytest.raises(EnvironmentFailedError, match=wanted):
        _rows(Counting(_broken_from(2)), 100)


def test_none_among_rewards_and_flags_names_its_row(caplog: pytest.LogCaptureFixture) -> None:
    """Lists with one None in them are looked at one by one."""

    def change(answer: Any, at: int) -> Any:
        observation, rewards, terminated, truncated, info = answer
        if at == 3:
            return observation, [1.0, None], terminated, truncated, info
        if at == 5:
            return observation, rewards, terminated, [False, None], info
        return answer

    with caplog.at_level(logging.WARNING):
        rows = _rows(Counting(change), 6)
    assert [t for t, cut in enumerate(rows["truncated"]) if cut] == [3, 5]
    first, second = (record.message for record in caplog.records)
    assert "environment 5" in first and "reward: expected a number, got None" in first
    assert "environment 5" in second and "truncated: expected a bool, got None" in second


def test_last_observation_survives_that_the_object_writes_into_its_array() -> None:
    """Some vectorised environments return the same array at every step."""

    class OneArray(Counting):
        array = np.zeros((2, 1), np.float32)

        def step(self, actions: np.ndarray) -> tuple[Any, ...]:
            observation, *rest = super().step(actions)
            self.array[:] = observation
            return self.array, *rest

    rows = []
    group = EnvGroup(CheckedVectorEnv(OneArray(_broken_from(3))), index=0, rng_seed=1)
    group.reset()
    for _ in range(4):
        rows.append(group.step(np.zeros(2, np.int64)).observations[0][1].item())
    assert rows == [1, 2, 2, 2]


def test_wrong_reset_is_tried_again_without_its_seed() -> None:
    """The same seed would have the same end."""

    class WrongWithASeed(Counting):
        def reset(self, *, seed: Any = None, **_: Any) -> tuple[Any, dict]:
            observation, info = super().reset()
            observation[1] = 0 if seed is None else NAN
            return observation, info

    env = CheckedVectorEnv(WrongWithASeed())
    observation, _ = env.reset(seed=7)
    assert observation.tolist() == [[0], [0]] and env.failures == 1


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda answer, at: answer[:4], r"step\(\): expected 5 values, as in Gymnasium, got tuple"),
        (
            lambda answer, at: (answer[0][:1], *answer[1:]),
            r"\['observation'\]: expected float32\[2, 1\], got an array float32\[1, 1\]",
        ),
        (
            lambda answer, at: (answer[0].repeat(2, axis=1), *answer[1:]),
            r"observations\['observation'\]: expected float32\[1\], got an array float32\[2\]",
        ),
        (
            lambda answer, at: (answer[0], 1.0, *answer[2:]),
            r"rewards: expected an array \[2\], one for each environment, got float 1.0",
        ),
        (
            lambda answer, at: (answer[0], answer[1], None, *answer[3:]),
            r"terminated: expected an array \[2\], one for each environment, got None",
        ),
    ],
    ids=["four values", "one row", "two numbers", "one reward", "no flags"],
)
def test_answer_of_a_wrong_form_ends_at_once(change: Any, wanted: str) -> None:
    """It would be wrong for all rows, now and later."""
    with pytest.raises(SpecError, match=wanted):
        _rows(Counting(change), 1)


def test_vectorised_environments_of_other_packages_are_checked() -> None:
    """`make_group` puts the check around a class that is registered without a single one."""

    def make(**_: Any) -> VectorEnv:
        return Counting(_nan_reward(2))

    gymnasium.register("odd/Vector-v0", vector_entry_point=make)
    group = make_group(EnvConfig(env_id="odd/Vector-v0"), index=1, num_envs=2, base_seed=1)
    group.reset()
    rows = [group.step(np.zeros(2, np.int64)) for _ in range(3)]
    assert [row.truncated.tolist() for row in rows] == [[False] * 2, [False, True], [False] * 2]
    assert group.failures == 1
