"""Catch: a very small game that is learnt from pixels ("seed/Catch-v0").

After bsuite's Catch (Osband et al. 2020). Used by tests and quick-start examples.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

ROWS, COLUMNS = 10, 5

# Pixels of a rendered square's side.
_SQUARE = 16


class Catch(gymnasium.Env):
    """A ball falls one row a step; a paddle in the last row must be under it.

    Observation: uint8 [10, 5], 255 at ball and paddle, else 0. Actions: 0 left,
    1 stay, 2 right. Reward: on the 9th and last step +1 if caught, else -1.
    """

    observation_space = spaces.Box(0, 255, (ROWS, COLUMNS), np.uint8)
    action_space = spaces.Discrete(3)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self._ball_row = self._ball_column = self._paddle = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Puts the ball at the top of a random column, and the paddle in the middle."""
        super().reset(seed=seed)
        self._ball_row = 0
        self._ball_column = int(self.np_random.integers(COLUMNS))
        self._paddle = COLUMNS // 2
        return self._screen(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Moves the paddle, then the ball."""
        self._paddle = min(max(self._paddle + int(action) - 1, 0), COLUMNS - 1)
        self._ball_row += 1
        landed = self._ball_row == ROWS - 1
        caught = self._ball_column == self._paddle
        reward = (1.0 if caught else -1.0) if landed else 0.0
        return self._screen(), reward, landed, False, {}

    def render(self) -> np.ndarray:  # type: ignore[override]
        """Returns the screen in 16 x 16 squares, uint8 [160, 80, 3]."""
        squares = self._screen().repeat(_SQUARE, axis=0).repeat(_SQUARE, axis=1)
        return np.repeat(squares[..., None], 3, axis=2)

    def _screen(self) -> np.ndarray:
        screen = np.zeros((ROWS, COLUMNS), np.uint8)
        screen[self._ball_row, self._ball_column] = 255
        screen[ROWS - 1, self._paddle] = 255
        return screen
