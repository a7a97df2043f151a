"""Several copies of any Gymnasium environment, stepped in turn, replaced when they fail.

Used by an `EnvGroup` in the actor's main thread, and in each worker process.
"""

import logging
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from actors.answers import WrongAnswerError
from actors.failures import GroupRecord
from actors.observations import ObservationReader
from actors.replacement import ReplacedOnError
from actors.spaces import space_of


class SyncVectorEnv(VectorEnv):
    """E environments in NEXT_STEP autoreset, each of which is replaced when it fails.

    Gymnasium's own class of this name costs CartPole 8 % more processor time a step.
    """

    def __init__(
        self, make_env: Callable[[], gymnasium.Env], num_envs: int, *, first_index: int = 0
    ) -> None:
        """Makes `num_envs` environments, which messages number from `first_index` on.

        Raises:
          SpecError: the environment has no spaces of Gymnasium, or a leaf that cannot travel.
        """
        super().__init__()
        self._record = GroupRecord()
        self._envs = [
            ReplacedOnError(make_env, first_index + i, self._record) for i in range(num_envs)
        ]
        self.num_envs = num_envs
        self._busy = 0
        self._first_index = first_index
        first = self._envs[0].env
        self.metadata = {**(first.metadata or {}), "autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_observation_space = space_of(first, "observation_space")
        self.single_action_space = space_of(first, "action_space")
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._reader = ObservationReader(self.single_observation_space, num_envs)
        self._batch: Any = None
        self._warned_of_keys = False

    @property
    def busy_env(self) -> int:
        """Number of the environment that steps or resets now, or did so last. Any thread."""
        return self._first_index + self._busy

    @property
    def failures(self) -> int:
        """Environments replaced so far."""
        return self._record.failures

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Resets all environments, the i-th with `seed` + i; returns (observation, {})."""
        seeds = [None if seed is None else seed + i for i in range(self.num_envs)]
        observations: list[Any] = []
        for i, (env, seed_of_env) in enumerate(zip(self._envs, seeds, strict=True)):
            self._busy = i
            observations.append(env.reset(seed_of_env, options))
        self._warn_of_unknown_keys(observations[0])
        self._batch = self._reader.batch(observations)
        if self._batch is None:
            self._batch = self._reader.batch(
                [self._fitting(i, observation) for i, observation in enumerate(observations)]
            )
        self._record.seen_right.add("reset observation")
        return self._batch, {}

    def step(
        self, actions: np.ndarray
    ) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Steps all environments; resets those whose episode ended with the last step.

        Returns:
          observation (batched), rewards float64 [E], terminated bool [E],
          truncated bool [E], {}. Infos are not passed on.
        """
        observations: list[Any] = [None] * self.num_envs
        rewards = np.zeros(self.num_envs, np.float64)
        terminated = np.zeros(self.num_envs, bool)
        truncated = np.zeros(self.num_envs, bool)
        for i, (env, action) in enumerate(zip(self._envs, actions, strict=True)):
            self._busy = i
            observations[i], rewards[i], terminated[i], truncated[i] = env.step(action)
        batch = self._reader.batch(observations)
        if batch is not None:
            self._record.seen_right.add("step observation")
        else:
            observations, failed = self._repaired(observations)
            rewards[failed], terminated[failed], truncated[failed] = 0, False, True
            batch = self._reader.batch(observations)
        # A new array each time, because the caller may keep the last one.
        self._batch = batch
        return batch, rewards, terminated, truncated, {}

    def close_extras(self, **kwargs: Any) -> None:
        """Closes every environment."""
        for env in self._envs:
            env.close()

    def _repaired(self, observations: list[Any]) -> tuple[list[Any], list[int]]:
        """Returns observations that fit the space, and which environments failed in their step.

        An observation of a step that failed is the one before it.
        """
        fitting = [self._fitting(i, observation) for i, observation in enumerate(observations)]
        failed = [i for i, observation in enumerate(fitting) if observation is None]
        for i in failed:
            fitting[i] = self._reader.row(self._batch, i)
        return fitting, failed

    def _fitting(self, i: int, observation: Any) -> Any | None:
        """Returns the observation of environment `i`, cast to the space.

        If it does not fit, the environment has failed. The result is then its next first
        observation, or None if a step failed.
        """
        while observation is not None:
            try:
                fitting = self._reader.read(observation)
            except WrongAnswerError as error:
                observation = self._envs[i].reject(error)
            else:
                self._envs[i].accept()
                return fitting
        return None

    def _warn_of_unknown_keys(self, observation: Any) -> None:
        keys = self._reader.unknown_keys(observation)
        if keys and not self._warned_of_keys:
            self._warned_of_keys = True
            logging.warning("the observation space has no %s: left out", ", ".join(keys))
