"""One environment that restarts itself: after each episode, and after each error of its own.

Used by `SyncVectorEnv`, in the actor's main thread or in a worker process. Leaves several
environments to `vectorisation.py`.
"""

import contextlib
import logging
import re
from collections.abc import Callable
from typing import Any

import gymnasium

from seed.errors import ConfigError, EnvironmentFailedError, SeedError, expected

# An environment that raises more often than this, with no episode that it ended by itself
# in between, is given up: its fault does not pass.
MAX_FAILURES_IN_A_ROW = 5

# What unpacking or calling an environment of the API before Gymnasium raises.
_OLD_API_ERROR = re.compile(
    r"expected 5, got 4|unexpected keyword argument '(seed|options)'|"
    r"(too many|not enough) values to unpack \(expected 2"
)


class ReplacedOnError:
    """An environment in NEXT_STEP autoreset that is replaced when it raises.

    A step that raises ends the episode as truncated, with the observation before it and
    reward 0. The environment is closed and made again at once, and the next step resets
    the new one, as after any other end:

        row           t        t+1 (raised)   t+2 (new environment)
        observation   o5       o5             o0
        reward        r5       0              0
        truncated     0        1              0
    """

    def __init__(self, make_env: Callable[[], gymnasium.Env], index: int) -> None:
        """Makes the environment.

        Args:
          make_env: called once now, and once after each failure.
          index: the environment's number in its group, for messages.
        """
        self.env = make_env()
        self.failures = 0
        """Environments replaced so far."""
        self._make_env = make_env
        self._index = index
        self._failures_in_a_row = 0
        self._last: Any = None
        self._is_done = False
        self._steps = 0

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Returns the first observation of a new episode; tries again where it raises.

        Raises:
          EnvironmentFailedError: it raised more than `MAX_FAILURES_IN_A_ROW` times in a row.
          ConfigError: the environment has the API before Gymnasium.
          SeedError: what the environment itself raises of these.
        """
        self._is_done = False
        self._steps = 0
        while True:
            try:
                self._last, _ = self.env.reset(seed=seed, options=options)
                return self._last
            except SeedError:
                raise
            except Exception as error:
                self._replace(error)

    def step(self, action: Any) -> tuple[Any, float, bool, bool]:
        """Steps, or resets if the last step ended an episode.

        Returns:
          observation, reward, terminated, truncated. The info is not passed on.

        Raises:
          As `reset`.
        """
        if self._is_done:
            return self.reset(), 0.0, False, False
        self._steps += 1
        try:
            self._last, reward, terminated, truncated, _ = self.env.step(action)
            reward = float(reward)
        except SeedError:
            raise
        except Exception as error:
            self._replace(error)
            self._is_done = True
            return self._last, 0.0, False, True
        if terminated or truncated:
            self._is_done = True
            self._failures_in_a_row = 0
        return self._last, reward, terminated, truncated

    def close(self) -> None:
        """Closes the environment."""
        self.env.close()

    def _replace(self, error: Exception) -> None:
        if _OLD_API_ERROR.search(str(error)):
            wanted = "reset() -> (observation, info) and step() -> 5 values, as in Gymnasium"
            raise ConfigError(expected("env_id", wanted, f"an older API ({error})")) from error
        self.failures += 1
        self._failures_in_a_row += 1
        where = f"environment {self._index} raised at step {self._steps} of its episode"
        if self._failures_in_a_row > MAX_FAILURES_IN_A_ROW:
            raise EnvironmentFailedError(
                f"{where}, for the {self._failures_in_a_row}th time in a row: {error!r}"
            ) from error
        logging.warning(
            "%s and is replaced (%d times so far)", where, self.failures, exc_info=error
        )
        with contextlib.suppress(Exception):
            self.env.close()
        self.env = self._make_env()
