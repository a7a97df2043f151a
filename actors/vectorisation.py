"""Several copies of any Gymnasium environment, stepped in turn, replaced when they fail.

Used by an `EnvGroup`, in the actor's main thread. Gymnasium's own SyncVectorEnv
lets one raising environment take all others down; this one does not.
"""

import contextlib
import logging
import re
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array

from seed.errors import ConfigError, EnvironmentFailedError, SeedError, expected

# Failures of one environment with no episode ended by itself in between, at which
# replacing it is given up: the fault is not a passing one.
MAX_FAILURES_IN_A_ROW = 5

# What unpacking or calling an environment of the API before Gymnasium raises.
_OLD_API_ERROR = re.compile(
    r"expected 5, got 4|unexpected keyword argument '(seed|options)'|"
    r"(too many|not enough) values to unpack \(expected 2"
)


class SyncVectorEnv(VectorEnv):
    """E environments in NEXT_STEP autoreset.

    A step that raises ends the episode as truncated, with the observation before
    it and reward 0; the environment is closed, made anew, and reset on the next
    step, like after any other end:

        row           t        t+1 (raised)   t+2 (new environment)
        observation   o5       o5             o0
        reward        r5       0              0
        truncated     0        1              0
    """

    def __init__(self, make_env: Callable[[], gymnasium.Env], num_envs: int) -> None:
        super().__init__()
        self._make_env = make_env
        self._envs = [make_env() for _ in range(num_envs)]
        self.num_envs = num_envs
        self.metadata = {**self._envs[0].metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_observation_space = self._envs[0].observation_space
        self.single_action_space = self._envs[0].action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._last: list[Any] = [None] * num_envs
        self._done = np.zeros(num_envs, bool)
        self._failures_in_a_row = np.zeros(num_envs, np.int64)
        self.failures = 0
        """Environments replaced so far."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Resets all environments, the i-th with `seed` + i; returns (observation, {})."""
        for i in range(self.num_envs):
            self._last[i] = self._reset(i, None if seed is None else seed + i, options)
        self._done.fill(False)
        return self._batched(), {}

    def step(
        self, actions: np.ndarray
    ) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Steps all environments; resets those whose episode ended with the last step.

        Returns:
          observation (batched), rewards float64 [E], terminated bool [E],
          truncated bool [E], {}. Infos are not passed on.
        """
        rewards = np.zeros(self.num_envs, np.float64)
        terminated = np.zeros(self.num_envs, bool)
        truncated = np.zeros(self.num_envs, bool)
        for i, action in enumerate(actions):
            if self._done[i]:
                self._last[i] = self._reset(i)
                continue
            try:
                self._last[i], rewards[i], terminated[i], truncated[i], _ = self._envs[i].step(
                    action
                )
            except SeedError:
                raise
            except Exception as error:
                self._replace(i, error)
                rewards[i], terminated[i], truncated[i] = 0, False, True
            else:
                if terminated[i] or truncated[i]:
                    self._failures_in_a_row[i] = 0
        self._done = terminated | truncated
        return self._batched(), rewards, terminated, truncated, {}

    def close_extras(self, **kwargs: Any) -> None:
        """Closes every environment."""
        for env in self._envs:
            env.close()

    def _batched(self) -> Any:
        space = self.single_observation_space
        # A new array each time: the caller may keep the last one.
        return concatenate(space, self._last, create_empty_array(space, self.num_envs))

    def _reset(self, i: int, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Returns the first observation of a new episode, of a new environment if need be."""
        while True:
            try:
                observation, _ = self._envs[i].reset(seed=seed, options=options)
                return observation
            except SeedError:
                raise
            except Exception as error:
                self._replace(i, error)

    def _replace(self, i: int, error: Exception) -> None:
        if _OLD_API_ERROR.search(str(error)):
            wanted = "reset() -> (observation, info) and step() -> 5 values, as in Gymnasium"
            raise ConfigError(expected("env_id", wanted, f"an older API ({error})")) from error
        self.failures += 1
        self._failures_in_a_row[i] += 1
        if self._failures_in_a_row[i] > MAX_FAILURES_IN_A_ROW:
            raise EnvironmentFailedError(
                f"environment {i} raised {self._failures_in_a_row[i]} times in a row: {error!r}"
            ) from error
        logging.warning(
            "environment %d raised, replacing it (%d so far)", i, self.failures, exc_info=error
        )
        with contextlib.suppress(Exception):
            self._envs[i].close()
        self._envs[i] = self._make_env()
