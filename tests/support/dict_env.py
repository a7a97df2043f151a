"""An environment with an observation of several parts, one of each kind that networks read.

Registered on import, so that the id "tests.support.dict_env:Parts-v0" makes it.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

ENV_ID = "tests.support.dict_env:Parts-v0"


class PartsEnv(gymnasium.Env):
    """Observes an image, numbers and one of four, all random; episodes last 3 to 9 steps."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {
                "image": spaces.Box(0, 255, (12, 12), np.uint8),
                "numbers": spaces.Box(-1, 1, (3,), np.float32),
                "one_of_four": spaces.Discrete(4),
            }
        )
        self.action_space = spaces.Discrete(3)
        self._left = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self._left = int(self.np_random.integers(3, 10))
        return self.observation_space.sample(), {}

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        self._left -= 1
        reward = float(action == 1)
        return self.observation_space.sample(), reward, self._left == 0, False, {}


gymnasium.register("Parts-v0", f"{__name__}:PartsEnv")
