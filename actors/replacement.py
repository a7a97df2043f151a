"""One environment that restarts itself: after each episode, and after each error of its own.

Used by `SyncVectorEnv`, in the actor's main thread or in a worker process. Leaves several
environments, and the check of their observations, to `vectorisation.py`.
"""

import contextlib
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium

from actors.answers import Step, WrongFormError, read_reset, read_step
from actors.failures import FailureCount, GroupRecord
from seed.errors import SeedError, expected

# What unpacking or calling an environment of the API before Gymnasium raises.
_OLD_API_ERROR = re.compile(
    r"expected 5, got 4|unexpected keyword argument '(seed|options)'|"
    r"(too many|not enough) values to unpack \(expected 2"
)
# Folders of the code that calls environments: the wrappers of Gymnasium, and this package.
_CALLERS = (str(Path(gymnasium.__file__).parent), str(Path(__file__).parent))


class ReplacedOnError:
    """An environment in NEXT_STEP autoreset that is replaced when it fails.

    It fails if it raises, or if its answer is rejected. A step that fails ends the episode as
    truncated, with the observation before it and reward 0. The environment is closed and made
    again at once, and the next step resets the new one, as after any other end:

        row           t        t+1 (failed)   t+2 (new environment)
        observation   o5       o5             o0
        reward        r5       0              0
        truncated     0        1              0
    """

    def __init__(
        self,
        make_env: Callable[[], gymnasium.Env],
        index: int,
        record: GroupRecord | None = None,
    ) -> None:
        """Makes the environment.

        Args:
          make_env: called once now, and once after each failure.
          index: the environment's number, for messages.
          record: of its group.
        """
        self.env = make_env()
        self._make_env = make_env
        self._record = record or GroupRecord()
        self._failures = FailureCount(index, self._record, "is replaced")
        self._is_done = False
        self._ended_by_itself = False
        self._steps = 0

    @property
    def failures(self) -> int:
        """Environments replaced so far."""
        return self._failures.total

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Returns the first observation of a new episode; tries again where it fails.

        Raises:
          EnvironmentFailedError: it failed too many times in a row.
          SpecError: the first answer of all is of a wrong form, such as that of the API
            before Gymnasium.
          SeedError: what the environment itself raises of these.
        """
        if self._ended_by_itself:
            self._failures.forgive()
        self._is_done = self._ended_by_itself = False
        self._steps = 0
        while True:
            try:
                observation = read_reset(self.env.reset(seed=seed, options=options))
            except SeedError:
                raise
            except Exception as error:
                self._replace(error, "reset")
            else:
                self._record.seen_right.add("reset")
                return observation

    def step(self, action: Any) -> Step:
        """Steps, or resets if the last step ended an episode.

        Returns:
          observation, reward, terminated, truncated. The observation is None if the
          environment failed. The info is not passed on.

        Raises:
          As `reset`.
        """
        if self._is_done:
            return self.reset(), 0.0, False, False
        self._steps += 1
        try:
            observation, reward, terminated, truncated = read_step(self.env.step(action))
        except SeedError:
            raise
        except Exception as error:
            return self._failed_step(error, "step")
        if self._steps == 1:
            self._record.seen_right.add("step")
        if terminated or truncated:
            self._is_done = self._ended_by_itself = True
        return observation, reward, terminated, truncated

    def reject(self, error: Exception) -> Any | None:
        """Treats the last answer as a failure, since its observation does not fit the space.

        Returns:
          The first observation of a new episode if the last answer was one; None if it was
          a step, which the caller then ends.

        Raises:
          As `reset`.
        """
        if self._steps:
            return self._failed_step(error, "step observation")[0]
        self._replace(error, "reset observation")
        return self.reset()

    def accept(self) -> None:
        """Notes that the last answer's observation fits the space."""
        self._record.seen_right.add("step observation" if self._steps else "reset observation")

    def close(self) -> None:
        """Closes the environment."""
        self.env.close()

    def _failed_step(self, error: Exception, part: str) -> Step:
        self._replace(error, part)
        self._is_done = True
        self._ended_by_itself = False
        return None, 0.0, False, True

    def _replace(self, error: Exception, part: str) -> None:
        self._failures.add(_old_api_fault(error) or error, part, self._steps)
        with contextlib.suppress(Exception):
            self.env.close()
        self.env = self._make_env()


def _old_api_fault(error: Exception) -> WrongFormError | None:
    """Returns the fault of an environment that a caller of its API could not call or unpack.

    An error of the same words from the environment's own code is not one.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if not _OLD_API_ERROR.search(str(error)) or not frames[-1].filename.startswith(_CALLERS):
        return None
    wanted = "reset() -> (observation, info) and step() -> 5 values, as in Gymnasium"
    return WrongFormError(expected("env_id", wanted, f"an older API ({error})"))
