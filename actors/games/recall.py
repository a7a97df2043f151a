"""Recall: the smallest task that takes a memory ("seed/Recall-v0").

The cue is shown at the first step and asked for at the last. Used by tests and quick-start
examples.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from seed.errors import require


class Recall(gymnasium.Env):
    """One of k cues is shown, then noise for `length` steps, then the cue is asked for.

    Observation: float32 [k + 2]: the cue, one-hot (zeros from step 1 on); noise,
    uniform in [-1, 1]; 1 when the answer is due, else 0. Actions: the number of a
    cue; only the answer counts. Drawn for length 3, and for a cue c:

        step          0     1      2      3      4     5
        observation   cue   noise  noise  noise  due   noise (last)
        action        any   any    any    any    c
        reward              0      0      0      0     +1 for c, else -1
        terminated                                     yes

    The best return is 1. A guess is right 1 time in k. No policy without a memory is
    better, unless it sees its last action: such a policy can take the cue as its first
    action and then repeat its last action. info["is_success"] on the last step
    tells whether the answer was right.
    """

    def __init__(self, num_cues: int = 2, length: int = 10) -> None:
        """Makes the task.

        Args:
          num_cues: k, at least 2.
          length: steps of noise alone between the cue and the question, at least 1.
        """
        for name, value, least in (("num_cues", num_cues, 2), ("length", length, 1)):
            require(
                type(value) is int and value >= least, name, f"an int of at least {least}", value
            )
        low, high = np.zeros(num_cues + 2, np.float32), np.ones(num_cues + 2, np.float32)
        low[num_cues] = -1.0
        self.observation_space = spaces.Box(low, high, dtype=np.float32)
        self.action_space = spaces.Discrete(num_cues)
        self._num_cues = num_cues
        self._answer_at = length + 1
        self._cue = self._step = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Shows a random cue."""
        super().reset(seed=seed)
        self._step = 0
        self._cue = int(self.np_random.integers(self._num_cues))
        return self._observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Ignores `action` unless the answer is due."""
        is_answer = self._step == self._answer_at
        is_right = is_answer and int(action) == self._cue
        self._step += 1
        reward = (1.0 if is_right else -1.0) if is_answer else 0.0
        info = {"is_success": is_right} if is_answer else {}
        return self._observe(), reward, is_answer, False, info

    def _observe(self) -> np.ndarray:
        observation = np.zeros(self._num_cues + 2, np.float32)
        if self._step == 0:
            observation[self._cue] = 1.0
        observation[self._num_cues] = self.np_random.uniform(-1.0, 1.0)
        observation[-1] = self._step == self._answer_at
        return observation
