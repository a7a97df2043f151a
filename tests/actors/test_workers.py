"""actors/workers.py plays the same episodes as one process, and loses or leaves no worker."""

import logging
import multiprocessing
import os
import signal
from multiprocessing.process import BaseProcess

import numpy as np
import pytest

import actors.workers
from actors.envs import make_group, make_vector_env
from actors.failures import MAX_FAILURES_IN_A_ROW
from actors.workers import WorkerVectorEnv
from seed.env_config import EnvConfig
from seed.errors import ConfigError, EnvironmentFailedError
from tests.actors.odd_envs import OldStep
from tests.support import counting_env

_FRAGILE = "tests.actors.odd_envs:odd/Fragile-v0"


def _children() -> list[BaseProcess]:
    return [child for child in multiprocessing.active_children() if "env-worker" in child.name]


@pytest.mark.parametrize(
    "env_id",
    [
        "CartPole-v1",
        counting_env.ENV_ID,
        "tests.actors.odd_envs:odd/NestedDict-v0",
        "tests.actors.odd_envs:odd/TupleOfKinds-v0",
    ],
)
def test_workers_give_the_episodes_of_one_process(env_id: str) -> None:
    """The same seed and actions give the same rows, for shares of 3 and 2 environments."""
    groups = [
        make_group(EnvConfig(env_id=env_id), index=1, num_envs=5, base_seed=3, num_workers=workers)
        for workers in (0, 2)
    ]
    num_actions = groups[0].spec.action.num_values
    assert groups[0].spec == groups[1].spec
    pairs = [tuple(group.reset() for group in groups)]
    for actions in np.random.default_rng(0).integers(0, num_actions, (60, 5)):
        pairs.append(tuple(group.step(actions) for group in groups))
    pairs.append(tuple(group.reset() for group in groups))
    assert any(mine.is_first.any() for mine, _ in pairs[1:-1])
    for mine, theirs in pairs:
        for name in ("rewards", "is_first", "terminated", "truncated", "episodes"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))
        for leaf, other in zip(mine.observations, theirs.observations, strict=True):
            assert leaf.dtype == other.dtype
            np.testing.assert_array_equal(leaf, other)
    for group in groups:
        group.close()
    assert not _children()


def test_environment_that_raises_in_a_worker_is_replaced_until_it_is_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The actor logs each failure, and raises the last one with the worker's traceback."""
    config = EnvConfig(env_id=_FRAGILE, env_kwargs='{"fails_at": 2}')
    env = make_vector_env(config, num_envs=2, num_workers=2)
    env.reset()
    actions = np.zeros(2, np.int64)
    with caplog.at_level(logging.WARNING):
        rows = [env.step(actions) for _ in range(3)]
    assert [row[0].tolist() for row in rows] == [[1, 1], [1, 1], [0, 0]]
    assert [row[3].tolist() for row in rows] == [[False] * 2, [True] * 2, [False] * 2]
    assert [record.message for record in caplog.records] == [
        f"environment {index} raised at step 2 of its episode and is replaced (1 times so far)"
        for index in range(2)
    ]
    with pytest.raises(EnvironmentFailedError, match=f"the {MAX_FAILURES_IN_A_ROW + 1}th") as error:
        for _ in range(100):
            env.step(actions)
    assert "RuntimeError: the simulator fell over" in error.value.__notes__[0]
    env.close()
    assert not _children()


def test_killed_worker_is_named() -> None:
    """A worker that the system kills, for want of memory for example, ends the group at once."""
    config = EnvConfig(env_id=counting_env.ENV_ID)
    env = make_vector_env(config, num_envs=3, num_workers=2)
    env.reset()
    second = next(child for child in _children() if child.name == "env-worker-2-2")
    assert second.pid is not None
    os.kill(second.pid, signal.SIGKILL)
    named = rf"env-worker-2-2 \(process {second.pid}\).*environments 2 to 2.*SIGKILL"
    with pytest.raises(EnvironmentFailedError, match=named):
        for _ in range(2):  # The first step may have been sent before the worker ended.
            env.step(np.zeros(3, np.int64))
    env.close()
    assert not _children()


def test_error_in_making_an_environment_ends_all_workers() -> None:
    """The constructor raises the error as in one process, and leaves no process behind."""
    config = EnvConfig(env_id=_FRAGILE, env_kwargs='{"colour": 1}')
    with pytest.raises(ConfigError, match="env_kwargs: expected arguments of odd/Fragile-v0"):
        make_vector_env(config, num_envs=2, num_workers=2)
    assert not _children()


def test_worker_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The actor ends although an environment hangs."""
    monkeypatch.setattr(actors.workers, "_CLOSE_GRACE_S", 0.1)
    config = EnvConfig(
        env_id="tests.actors.odd_envs:odd/NeverCloses-v0", env_kwargs='{"fails_at": 0}'
    )
    env = make_vector_env(config, num_envs=1, num_workers=1)
    env.close()
    assert not _children()


def test_more_workers_than_environments_are_refused() -> None:
    """A worker without an environment is a mistake in the flags."""
    with pytest.raises(ConfigError, match=r"env_workers: expected at most envs_per_group \(2\)"):
        WorkerVectorEnv(OldStep, num_envs=2, num_workers=3)


@pytest.mark.parametrize("env_id", ["ALE/Pong-v5", "seed/Null-v0"])
def test_environments_that_step_themselves_refuse_workers(env_id: str) -> None:
    """They are one object for all environments of a group, so workers cannot share them."""
    with pytest.raises(ConfigError, match=f"env_workers: expected 0 for {env_id}, got 2"):
        make_vector_env(EnvConfig(env_id=env_id), num_envs=4, num_workers=2)
