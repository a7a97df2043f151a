"""An environment that takes no time, to measure all the rest ("seed/Null-v0").

Used by `seed bench` and tests.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space


class NullVectorEnv(VectorEnv):
    """Returns the same array of zeros at every step, for all environments at once."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(
        self,
        num_envs: int,
        *,
        shape: Sequence[int] = (84, 84),
        num_actions: int = 18,
        episode_length: int = 0,
        max_episode_steps: int | None = None,
    ) -> None:
        """Makes `num_envs` of them.

        Args:
          num_envs: environments that step together.
          shape: of the uint8 observation.
          num_actions: size of the Discrete action space.
          episode_length: steps after which all episodes are truncated; 0 for never.
          max_episode_steps: the same, for a time limit; the smaller of the two counts.
        """
        super().__init__()
        self.num_envs = num_envs
        self.single_observation_space = spaces.Box(0, 255, tuple(shape), np.uint8)
        self.single_action_space = spaces.Discrete(num_actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._episode_length = min(filter(None, (episode_length, max_episode_steps)), default=0)
        self._steps = 0
        self._observation = np.zeros((num_envs, *shape), np.uint8)
        self._rewards = np.zeros(num_envs, np.float32)
        self._none = np.zeros(num_envs, bool)
        self._all = np.ones(num_envs, bool)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Returns (zeros [E, *shape], {})."""
        self._steps = 0
        return self._observation, {}

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Returns the same zeros and rewards of 0; all are truncated at the episode's end."""
        truncated = self._none
        if self._episode_length:
            # One more than the length: the step that resets.
            self._steps = (self._steps + 1) % (self._episode_length + 1)
            truncated = self._all if self._steps == self._episode_length else self._none
        return self._observation, self._rewards, self._none, truncated, {}
