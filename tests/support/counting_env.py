"""An environment whose every observation tells the episode and the step.

Registered on import, so that a real actor process makes it from the id
"tests.support.counting_env:Counting-v0".
"""

from typing import Any

import gymnasium
import numpy as np

ENV_ID = "tests.support.counting_env:Counting-v0"
NUM_ACTIONS = 5


class CountingEnv(gymnasium.Env):
    """Observes [episode, step, action that led here]; rewards 10 * episode + step.

    Episode k lasts 1 + k % `longest` steps, and ends as truncated if
    `truncate_every` divides its number (from 1), else as terminated.
    """

    def __init__(self, longest: int = 7, truncate_every: int = 2) -> None:
        self.observation_space = gymnasium.spaces.Box(-1, 1e6, (3,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(NUM_ACTIONS)
        self._longest = longest
        self._truncate_every = truncate_every
        self._episode = 0
        self._step = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._episode += 1
        self._step = 0
        return self._observe(-1), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._step += 1
        ends = self._step >= 1 + self._episode % self._longest
        truncated = ends and self._truncate_every > 0 and self._episode % self._truncate_every == 0
        reward = 10.0 * self._episode + self._step
        return self._observe(action), reward, ends and not truncated, truncated, {}

    def _observe(self, action: int) -> np.ndarray:
        return np.array([self._episode, self._step, action], np.float32)


gymnasium.register("Counting-v0", f"{__name__}:CountingEnv")
