"""actors/failures.py counts failures in a row; test_replacement.py tries it with environments."""

import pytest

from actors.answers import WrongFormError, WrongValueError
from actors.failures import MAX_FAILURES_IN_A_ROW, FailureCount, GroupRecord
from seed.errors import EnvironmentFailedError, SpecError


def test_environments_share_the_total_and_not_the_row() -> None:
    """Many environments that fail once each are no reason to give one up."""
    record = GroupRecord()
    counts = [FailureCount(i, record, "is replaced") for i in range(2 * MAX_FAILURES_IN_A_ROW)]
    for count in counts:
        count.add(WrongValueError("reward: expected 1, got 2"), "step", 1)
    assert record.failures == len(counts)
    assert [count.total for count in counts] == [1] * len(counts)


def test_one_failure_more_than_allowed_has_no_cause_if_nothing_was_raised() -> None:
    """The message of a wrong answer says all; a traceback would show only this system's code."""
    count = FailureCount(3, GroupRecord(), "is replaced")
    with pytest.raises(EnvironmentFailedError, match="3 gave a wrong answer at its reset") as error:
        for _ in range(MAX_FAILURES_IN_A_ROW + 1):
            count.add(WrongValueError("reward: expected 1, got 2"), "reset", 0)
    assert error.value.__cause__ is None


def test_wrong_form_is_final_only_before_a_right_one() -> None:
    """Another environment of the group that answered well shows that the code can."""
    record = GroupRecord()
    with pytest.raises(SpecError, match=r"reward: expected 1, got 2 \(environment 3, step 7"):
        FailureCount(3, record, "").add(WrongFormError("reward: expected 1, got 2"), "step", 7)
    record.seen_right.add("step")
    FailureCount(3, record, "").add(WrongFormError("reward: expected 1, got 2"), "step", 7)
    assert record.failures == 1
