"""The T-maze: a sign at the start tells where to turn at the end ("seed/TMaze-v0").

After Bakker (2002), "Reinforcement Learning with Long Short-Term Memory". Used by
tests and experiments.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from seed.errors import require

LEFT, RIGHT, UP, DOWN = range(4)

STEP_REWARD = -0.01
GOAL_REWARD = 1.0
DEAD_END_REWARD = -0.1

# For the default time limit: a random walk needs 220 steps through 10 cells, on average.
_TIME_LIMIT_PER_CELL = 20


class TMaze(gymnasium.Env):
    """A corridor of `length` cells that ends at a junction, where one side holds the goal.

                              goal?
         S  .  .  .  .  .  .  .  J        S: the sign, up or down
                              goal?

    Observation: float32 [4], one-hot: at a sign that says up, at a sign that says
    down, in the corridor, at the junction. All cells between sign and junction look
    alike, so the position is not seen.

    Actions: 0 left, 1 right, 2 up, 3 down. Up and down at the junction end the
    episode: +1 for the side that the sign told, -0.1 for the other. Every other step
    costs 0.01, also one into a wall. After `time_limit` steps without a turn
    the episode is truncated.

    The best return is 1 - 0.01 * `length`. Only an episode that found the goal has a
    positive return. A policy without a memory finds it 1 time in 2 at best, even if it
    sees its last action and reward: the step that leads to the junction is always
    "right" and always costs the same. info["is_success"] on the last step tells
    whether the goal was found.

    Unlike in the paper the goal is worth 1, not 4, and every step costs the same, so that
    standing still and going back gain nothing.
    """

    observation_space = spaces.Box(0, 1, (4,), np.float32)
    action_space = spaces.Discrete(4)

    def __init__(self, length: int = 10, time_limit: int | None = None) -> None:
        """Builds the maze.

        Args:
          length: cells of the corridor, the sign's included; the junction follows the last.
          time_limit: steps after which an episode is truncated; None for 20 * `length`.
        """
        require(type(length) is int and length >= 1, "length", "an int of at least 1", length)
        limit = _TIME_LIMIT_PER_CELL * length if time_limit is None else time_limit
        require(type(limit) is int and limit > length, "time_limit", "an int above length", limit)
        self._length = length
        self._time_limit = limit
        self._goal = UP
        self._position = self._step = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Puts the agent at the sign and the goal on a random side."""
        super().reset(seed=seed)
        self._goal = UP if self.np_random.integers(2) else DOWN
        self._position = self._step = 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Moves one cell, or turns."""
        self._step += 1
        if self._position == self._length and action in (UP, DOWN):
            found = bool(action == self._goal)
            reward = GOAL_REWARD if found else DEAD_END_REWARD
            return self._observe(), reward, True, False, {"is_success": found}
        self._position += int(action == RIGHT) - int(action == LEFT)
        self._position = min(max(self._position, 0), self._length)
        out_of_time = self._step == self._time_limit
        info = {"is_success": False} if out_of_time else {}
        return self._observe(), STEP_REWARD, False, out_of_time, info

    def _observe(self) -> np.ndarray:
        """Returns what the agent's cell shows; after a turn that is still the junction."""
        observation = np.zeros(4, np.float32)
        if self._position == 0:
            observation[0 if self._goal == UP else 1] = 1.0
        else:
            observation[3 if self._position == self._length else 2] = 1.0
        return observation
