"""actors/vectorisation.py replaces environments that fail, a limited number of times."""

import functools
import logging
import re
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from actors.failures import MAX_FAILURES_IN_A_ROW
from actors.vectorisation import SyncVectorEnv
from actors.workers import WorkerVectorEnv
from seed.errors import EnvironmentFailedError, SpecError
from tests.actors.odd_envs import WRONG_STEPS, Fragile, OldReset, OldStep, WrongAnswer

_ACTIONS = np.zeros(1, np.int64)

# What the log says of each kind of wrong answer.
_FAULTS = {
    "raises": "environment 11 raised at step 3 of its episode and is replaced (1 times so far)",
    "nan reward": "reward: expected a finite number of float32, got nan",
    "infinite reward": "reward: expected a finite number of float32, got inf",
    "huge reward": "reward: expected a finite number of float32, got -1e+39",
    "no reward": "reward: expected a number, got None",
    "two rewards": "reward: expected a number, got an array float64[2]",
    "word as reward": "reward: expected a number, got str '1.0'",
    "complex reward": "reward: expected a number, got complex 1j",
    "no flag": "terminated: expected a bool, got None",
    "nan flag": "truncated: expected a bool, got float nan",
    "two flags": "terminated: expected a bool, got an array bool[2]",
    "word as flag": "terminated: expected a bool, got str 'False'",
    "four values": "step() -> 5 values, as in Gymnasium, got tuple of 4",
    "six values": "step() -> 5 values, as in Gymnasium, got tuple of 6",
    "nothing": "step() -> 5 values, as in Gymnasium, got None",
    "a dict": "step() -> 5 values, as in Gymnasium, got dict of 5",
    "no observation": "observation: expected a member of observation_space, got None",
    "nan observation": "observations['x'][1]: expected a finite number of float32, got nan",
    "infinite observation": "observations['x'][0]: expected a finite number of float32, got inf",
    "huge observation": "observations['x'][1]: expected a finite number of float32, got 1e+39",
    "nan at the end": "observations['x'][0]: expected a finite number of float32, got nan",
    "missing key": "observations['pixels']: expected uint8[2], got no such key in ['square', 'x']",
    "short leaf": "observations['x']: expected float64[2], got an array float64[1]",
    "leaf with one more axis": "observations['x']: expected float64[2], got an array float64[2, 1]",
    "ragged leaf": "observations['x']: expected float64[2], got list of 2 [[0.0], [0.0, 1.0]]",
    "words": "observations['x']: expected float64[2], got an array <U1[2]",
    "no leaf": "observations['x']: expected float64[2], got list of 2 [None, None]",
    "too large for uint8": "observations['pixels'][0]: expected uint8, got int64 256",
    "negative for uint8": "observations['pixels'][1]: expected uint8, got int16 -1",
    "fraction for uint8": "observations['pixels'][1]: expected uint8, got float64 0.5",
    "value that does not exist": "observations['square']: expected 0 .. 29, got 30",
    "fraction as value": "observations['square']: expected int64, got float64 1.5",
    "no dict": "observations['pixels']: expected uint8[2], got an array float64[2]",
}


def test_failed_step_ends_its_episode_as_truncated_and_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The row repeats the last observation without reward; the next row is a new environment's."""
    env = SyncVectorEnv(lambda: Fragile(fails_at=3), 1)
    env.reset()
    with caplog.at_level(logging.WARNING):
        rows = [env.step(_ACTIONS) for _ in range(5)]
    assert [row[0].tolist() for row in rows] == [[1], [2], [2], [0], [1]]
    assert [row[1].tolist() for row in rows] == [[1], [1], [0], [0], [1]]
    assert [row[3].tolist() for row in rows] == [[False], [False], [True], [False], [False]]
    assert not any(row[2].any() for row in rows)
    assert env.failures == 1
    assert "the simulator fell over" in caplog.text


def test_failure_of_one_environment_leaves_the_others_alone() -> None:
    """The episodes of the other environments go on while one is replaced."""
    fails_at = iter([2, 100, 100])
    env = SyncVectorEnv(lambda: Fragile(fails_at=next(fails_at)), 2)
    env.reset()
    actions = np.zeros(2, np.int64)
    observations = [env.step(actions)[0].tolist() for _ in range(4)]
    assert observations == [[1, 1], [1, 2], [0, 3], [1, 4]]


def test_too_many_failures_in_a_row_raise_the_cause() -> None:
    """The group gives up an environment that fails and never ends an episode by itself."""
    env = SyncVectorEnv(lambda: Fragile(fails_at=1), 1)
    env.reset()
    with pytest.raises(EnvironmentFailedError, match="fell over") as caught:
        for _ in range(100):
            env.step(_ACTIONS)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert env.failures == MAX_FAILURES_IN_A_ROW + 1


class FailsInSecondEpisode(Fragile):
    """Ends its first episode by itself, after one step."""

    def __init__(self) -> None:
        super().__init__(fails_at=0, ends_at=1)

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        result = super().step(action)
        self._fails_at = 1
        return result


def test_episode_that_ends_by_itself_forgives_failures() -> None:
    """Any number of failures is allowed if good episodes come between them."""
    env = SyncVectorEnv(FailsInSecondEpisode, 1)
    env.reset()
    for _ in range(10 * MAX_FAILURES_IN_A_ROW):
        env.step(_ACTIONS)
    assert env.failures > MAX_FAILURES_IN_A_ROW


def test_each_environment_has_its_own_seed() -> None:
    """Environment i is seeded with the group's seed plus i."""
    both, _ = SyncVectorEnv(CartPoleEnv, 2).reset(seed=5)
    second, _ = SyncVectorEnv(CartPoleEnv, 1).reset(seed=6)
    np.testing.assert_array_equal(both[1], second[0])
    assert (both[0] != both[1]).all()


def test_failing_reset_is_retried_with_new_environments_then_given_up() -> None:
    """Resets that raise count as failures in a row."""
    env = SyncVectorEnv(lambda: Fragile(fails_at=1, fails_in_reset=True), 1)
    with pytest.raises(EnvironmentFailedError, match="no reset today"):
        env.reset()


def _with_time_limit(old: type) -> gymnasium.Env:
    return gymnasium.wrappers.TimeLimit(old(), 100)


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("old", [OldStep, OldReset])
def test_old_api_is_refused_by_name(old: type, wrapped: bool) -> None:
    """The error says which API is expected, also if a wrapper of Gymnasium meets it first."""
    env = SyncVectorEnv(functools.partial(_with_time_limit, old) if wrapped else old, 1)
    with pytest.raises(SpecError, match=r"step\(\) -> 5 values, as in Gymnasium"):
        env.reset()
        env.step(_ACTIONS)


def test_every_kind_of_wrong_answer_is_tried() -> None:
    """A kind that is added without its message fails here."""
    assert _FAULTS.keys() == WRONG_STEPS.keys()


def _make_wrong(kind: str, at: int, copy: int | None) -> Callable[[], WrongAnswer]:
    WrongAnswer.copies = 0
    return functools.partial(WrongAnswer, kind, at, copy)


def _play(env: SyncVectorEnv, num_steps: int) -> dict[str, np.ndarray]:
    """Returns columns of a reset and steps, [T, E]; "x" is the first element of the leaf x."""
    observation, _ = env.reset(seed=1)
    nothing = np.zeros(env.num_envs)
    rows = [(observation, nothing, nothing, nothing, {})]
    rows += [env.step(np.zeros(env.num_envs, np.int64)) for _ in range(num_steps)]
    observations, *columns, _ = zip(*rows, strict=True)
    assert all(np.isfinite(o["x"]).all() and (o["square"] < 30).all() for o in observations)
    names = ("rewards", "terminated", "truncated")
    stacked = dict(zip(names, map(np.stack, columns), strict=True))
    return stacked | {"x": np.stack([o["x"][:, 0] for o in observations])}


@pytest.mark.parametrize("kind", _FAULTS)
def test_environment_with_one_wrong_answer_is_replaced_and_named(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its episode is truncated as if it had raised; the other environments play on."""
    env = SyncVectorEnv(_make_wrong(kind, at=3, copy=2), 3, first_index=10)
    with caplog.at_level(logging.WARNING):
        rows = _play(env, 5)
    assert rows["x"].T.tolist() == [[0, 1, 2, 3, 4, 5], [0, 1, 2, 2, 0, 1], [0, 1, 2, 3, 4, 5]]
    assert rows["rewards"].T.tolist() == [[0, 1, 1, 1, 1, 1], [0, 1, 1, 0, 0, 1], [0, *[1] * 5]]
    assert rows["truncated"].T.tolist() == [[0] * 6, [0, 0, 0, 1, 0, 0], [0] * 6]
    assert not rows["terminated"].any()
    assert env.failures == 1
    (message,) = (record.message for record in caplog.records)
    assert message.startswith("environment 11 ") and "at step 3 of its episode" in message
    assert _FAULTS[kind] in message


@pytest.mark.parametrize("kind", _FAULTS)
def test_environment_whose_answers_stay_wrong_is_given_up_alone(kind: str) -> None:
    """The limit holds for each environment, also if every wrong answer ends an episode."""
    env = SyncVectorEnv(_make_wrong(kind, at=3, copy=None), 2)
    with pytest.raises(EnvironmentFailedError, match="environment 0 .*for the 6th time in a row"):
        _play(env, 100)
    assert env.failures == 2 * MAX_FAILURES_IN_A_ROW + 1


@pytest.mark.parametrize("kind", ["nan observation", "short leaf", "no observation"])
def test_wrong_first_observation_is_tried_again(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The replaced environment resets in the same row, as one that raises in its reset."""
    with caplog.at_level(logging.WARNING):
        rows = _play(SyncVectorEnv(_make_wrong(kind, at=0, copy=2), 3), 2)
    assert rows["x"].T.tolist() == [[0, 1, 2]] * 3
    assert not rows["truncated"].any()
    (message,) = (record.message for record in caplog.records)
    assert "environment 1 gave a wrong answer at its reset and is replaced" in message


@pytest.mark.parametrize(
    "kind", [kind for kind in _FAULTS if kind not in ("raises", "nan at the end")]
)
def test_first_answer_of_a_wrong_form_ends_at_once(kind: str) -> None:
    """Code whose very first answer has a wrong type or shape is not tried five times more."""
    env = SyncVectorEnv(_make_wrong(kind, at=1, copy=None), 2)
    is_value = "finite" in _FAULTS[kind] or "0 .. 29" in _FAULTS[kind]
    if is_value:
        with pytest.raises(EnvironmentFailedError, match="for the 6th time"):
            _play(env, 100)
        return
    with pytest.raises(SpecError, match=re.escape(_FAULTS[kind])):
        _play(env, 1)
    assert env.failures == 0


@pytest.mark.parametrize("kind", ["nan reward", "huge observation", "missing key"])
def test_workers_replace_environments_with_wrong_answers(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The rows are those of one process; the failures of all workers are counted."""
    make_env = _make_wrong(kind, at=3, copy=2)
    env = WorkerVectorEnv(make_env, 4, 2, first_index=4)
    with caplog.at_level(logging.WARNING):
        rows = _play(env, 5)  # pyright: ignore[reportArgumentType]
    env.close()
    # The second copy of each worker: environments 5 and 7.
    good, bad = [0, 1, 2, 3, 4, 5], [0, 1, 2, 2, 0, 1]
    assert rows["x"].T.tolist() == [good, bad, good, bad]
    assert env.failures == 2
    messages = sorted(record.message for record in caplog.records)
    assert [message.split(" gave")[0] for message in messages] == ["environment 5", "environment 7"]
    assert all(_FAULTS[kind] in message for message in messages)


class Casual(gymnasium.Env):
    """Answers in other types than it says; no number changes when they are cast."""

    observation_space = spaces.Dict(
        {
            "pixels": spaces.Box(0, 255, (2,), np.uint8),
            "square": spaces.Discrete(9, start=1),
            "speed": spaces.Box(0, 9, (), np.float32),
            "one": spaces.Box(0, 9, (1,), np.float32),
            "mask": spaces.MultiBinary(2),
        }
    )
    action_space = spaces.Discrete(2)

    def reset(self, **_: Any) -> Any:
        observation = {
            "pixels": [0, 255],
            "square": np.array([1.0]),
            "speed": np.array([3]),
            "one": 0.5,
            "mask": [True, False],
        }
        return observation, None

    def step(self, action: int) -> Any:
        return [self.reset()[0], np.array([[2]]), np.array([0]), 1, None]


def test_answers_that_fit_are_cast() -> None:
    """Lists, other integers, arrays of one element and 0 or 1 for a flag lose nothing."""
    env = SyncVectorEnv(Casual, 2)
    env.reset()
    observation, rewards, terminated, truncated, _ = env.step(np.zeros(2, np.int64))
    dtypes = {key: (leaf.dtype.name, leaf[1].tolist()) for key, leaf in observation.items()}
    assert dtypes == {
        "mask": ("int8", [1, 0]),
        "one": ("float32", [0.5]),
        "pixels": ("uint8", [0, 255]),
        "speed": ("float32", 3),
        "square": ("int64", 1),
    }
    assert rewards.tolist() == [2, 2] and truncated.all() and not terminated.any()
    assert env.failures == 0


class ReusesItsArray(Fragile):
    """Writes every observation into the same array, also one that it does not return."""

    observation_space = spaces.Box(0, np.inf, (1,), np.float32)

    def reset(self, **kwargs: Any) -> tuple[Any, dict]:
        super().reset()
        self._array = np.zeros(1, np.float32)
        return self._array, {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        self._array += 1
        if self._array[0] == 3:
            self._array[0] = np.nan
        return self._array, 1.0, False, False, {}


def test_repeated_observation_is_the_one_that_was_passed_on() -> None:
    """The last good observation is kept by value: its array holds NaN by now."""
    env = SyncVectorEnv(lambda: ReusesItsArray(0), 1)
    env.reset()
    assert [env.step(_ACTIONS)[0].item() for _ in range(4)] == [1, 2, 2, 0]


def test_values_out_of_bounds_are_passed_on_and_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Many environments declare tighter bounds than they keep."""

    class Wide(Fragile):
        observation_space = spaces.Box(0, 1, (), np.float32)

    env = SyncVectorEnv(lambda: Wide(0), 2, first_index=4)
    env.reset()
    with caplog.at_level(logging.WARNING):
        observations = [env.step(np.zeros(2, np.int64))[0].tolist() for _ in range(3)]
    assert observations == [[1, 1], [2, 2], [3, 3]]
    assert [record.message for record in caplog.records] == [
        "observations['observation']: the observation space has 0 .. 1, got 2.0; such values "
        "are passed on"
    ]
    assert env.failures == 0


def test_keys_that_the_space_lacks_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """They are left out, as Gymnasium does, but not without a word."""

    class Talkative(WrongAnswer):
        def _answer(self) -> Any:
            observation, *rest = super()._answer()
            return {**observation, "debug": "all is well"}, *rest

    env = SyncVectorEnv(lambda: Talkative("raises", at=-1), 2)
    with caplog.at_level(logging.WARNING):
        _play(env, 3)
        env.reset()
    assert [record.message for record in caplog.records] == [
        "the observation space has no debug: left out"
    ]


@pytest.mark.parametrize("attribute", ["observation_space", "action_space"])
@pytest.mark.parametrize("space", [None, (2, 3)])
def test_environment_without_a_space_is_refused(attribute: str, space: Any) -> None:
    """The error names the attribute and what it is."""

    class Spaceless(Fragile):
        pass

    setattr(Spaceless, attribute, space)
    wanted = rf"{attribute}: expected a space of Gymnasium \(gymnasium.spaces\), got"
    with pytest.raises(SpecError, match=wanted):
        SyncVectorEnv(lambda: Spaceless(0), 1)


@pytest.mark.parametrize("first", [np.zeros(2, np.float32), 3, {"position": 1}, (1, 2), (1, 2, 3)])
def test_old_reset_is_refused_whatever_it_returns(first: Any) -> None:
    """An observation of two elements is not taken for observation and info."""

    class Old(Fragile):
        def reset(self, **_: Any) -> Any:
            return first

    env = SyncVectorEnv(lambda: Old(0), 4)
    with pytest.raises(SpecError, match=r"reset\(\) -> \(observation, info\).*got"):
        env.reset()


def test_unpacking_error_in_the_environments_own_code_is_no_old_api(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The same words may come from a bug, whose traceback is then shown."""

    class Buggy(Fragile):
        def reset(self, **_: Any) -> Any:
            position, speed = (1, 2, 3)  # type: ignore[misc]
            return position, speed

    env = SyncVectorEnv(lambda: Buggy(0), 1)
    with pytest.raises(EnvironmentFailedError, match="too many values to unpack"):
        env.reset()
