"""Counts how often the environments of one group failed, and when one is given up.

Used by `ReplacedOnError` and `CheckedVectorEnv`, which say what follows from a failure.
"""

import dataclasses
import logging

from actors.answers import WrongAnswerError, WrongFormError
from seed.errors import EnvironmentFailedError, SpecError

# An environment that fails more often than this, with no episode that it ended by itself
# in between, is given up: its fault does not pass.
MAX_FAILURES_IN_A_ROW = 5


@dataclasses.dataclass
class GroupRecord:
    """What the environments of one group have done so far."""

    failures: int = 0
    """Failures of all of them."""
    seen_right: set[str] = dataclasses.field(default_factory=set)
    """The parts (see `FailureCount.add`) that have had a right form at least once."""


class FailureCount:
    """The failures of one environment."""

    def __init__(self, index: int, record: GroupRecord, remedy: str) -> None:
        """Begins at 0.

        Args:
          index: the environment's number, for messages.
          record: of its group; the failures are added to it.
          remedy: what follows from a failure, for the log: "is replaced".
        """
        self.total = 0
        """Failures so far."""
        self._index = index
        self._record = record
        self._remedy = remedy
        self._in_a_row = 0

    def add(self, error: Exception, part: str, step: int) -> None:
        """Counts and logs a failure.

        Args:
          error: what the environment raised, or what is wrong with its answer.
          part: what failed: "reset", "step", "reset observation" or "step observation".
          step: actions applied in the episode, the failed one included; 0 for a reset.

        Raises:
          SpecError: the form of the answer is wrong, and no environment of the group has ever
            given a right one: another try would have the same end.
          EnvironmentFailedError: one failure too many in a row.
        """
        is_answer = isinstance(error, WrongAnswerError)
        if isinstance(error, WrongFormError) and part not in self._record.seen_right:
            raise SpecError(f"{error} (environment {self._index}, {_moment(step)})")
        self.total += 1
        self._record.failures += 1
        self._in_a_row += 1
        what = "gave a wrong answer" if is_answer else "raised"
        where = f"environment {self._index} {what} at {_moment(step)}"
        if self._in_a_row > MAX_FAILURES_IN_A_ROW:
            raise EnvironmentFailedError(
                f"{where}, for the {self._in_a_row}th time in a row: "
                f"{error if is_answer else repr(error)}"
            ) from (None if is_answer else error)
        logging.warning(
            "%s and %s (%d times so far)%s",
            *(where, self._remedy, self.total, f": {error}" if is_answer else ""),
            exc_info=None if is_answer else error,
        )

    def forgive(self) -> None:
        """Begins a new row: the environment ended an episode by itself."""
        self._in_a_row = 0


def _moment(step: int) -> str:
    return "its reset" if step == 0 else f"step {step} of its episode"
