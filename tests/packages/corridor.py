"""An environment, registered when this module is imported, and a preset that runs it."""

import gymnasium
import numpy as np
from gymnasium import spaces

from learner.config.agent_config import VTraceConfig
from learner.config.presets import Preset
from learner.config.run_config import (
    ActorConfig,
    LearnerConfig,
    NetworkConfig,
    OptimizerConfig,
    RunConfig,
)
from seed.env_config import EnvConfig


class Corridor(gymnasium.Env):
    """Walk right from the middle to the end; the left end is a trap."""

    def __init__(self, length: int = 7) -> None:
        self.length = length
        self.position = 0
        self.observation_space = spaces.Box(-1, 1, (1,), np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self.position = self.length // 2
        return self._observation(), {}

    def step(self, action: int):
        self.position += 1 if action == 1 else -1
        at_end = self.position in (0, self.length - 1)
        return self._observation(), float(self.position > 0 and at_end), at_end, False, {}

    def _observation(self) -> np.ndarray:
        return np.array([2 * self.position / (self.length - 1) - 1], np.float32)


gymnasium.register("Corridor-v0", entry_point=f"{__name__}:Corridor")

CORRIDOR = Preset(
    "A corridor of seven cells with V-trace: seconds.",
    RunConfig(
        # The actors import this module too, so that the environment is registered there.
        env=EnvConfig(env_id=f"{__name__}:Corridor-v0"),
        network=NetworkConfig(hidden_sizes=(16,)),
        agent=VTraceConfig(unroll_length=10, batch_size=8),
        optimizer=OptimizerConfig(optimizer="adam", learning_rate=3e-3, epsilon=1e-5),
        actor=ActorConfig(envs_per_group=8),
        learner=LearnerConfig(total_env_steps=20_000),
    ),
)
