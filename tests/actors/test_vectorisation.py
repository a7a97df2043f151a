"""actors/vectorisation.py replaces environments that fail, a limited number of times."""

import logging
from typing import Any

import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from actors.replacement import MAX_FAILURES_IN_A_ROW
from actors.vectorisation import SyncVectorEnv
from seed.errors import ConfigError, EnvironmentFailedError
from tests.actors.odd_envs import Fragile, OldReset, OldStep

_ACTIONS = np.zeros(1, np.int64)


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


@pytest.mark.parametrize("old", [OldStep, OldReset])
def test_old_api_is_refused_by_name(old: type) -> None:
    """The error says which API is expected instead of counting failures."""
    env = SyncVectorEnv(old, 1)
    with pytest.raises(ConfigError, match=r"step\(\) -> 5 values, as in Gymnasium"):
        env.reset()
        env.step(_ACTIONS)
