"""The fields at the head of every file of measurements."""

import datetime

import psutil
import pytest

from seed.provenance import describe_hardware, evidence_header, git_commit, num_cores, provenance


def test_evidence_names_command_day_machine_and_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file of docs/results has these fields."""
    monkeypatch.setenv("SEED_GIT_COMMIT", "0123abc")
    header = evidence_header("seed bench --json")
    assert header["command"] == "seed bench --json"
    datetime.date.fromisoformat(header["date"])
    assert header["hardware"] == describe_hardware()
    assert header["git_commit"] == "0123abc"


def test_hardware_names_the_cores_that_may_be_used() -> None:
    """A container may use fewer cores than the machine has."""
    assert f", {num_cores()} cores, " in describe_hardware()


@pytest.mark.skipif(not hasattr(psutil.Process, "cpu_affinity"), reason="no process is pinned")
def test_cores_are_those_that_the_process_is_pinned_to() -> None:
    """A learner that is pinned to one core starts no threads for other cores."""
    process = psutil.Process()
    allowed = process.cpu_affinity()
    process.cpu_affinity(allowed[:1])
    try:
        assert num_cores() == 1
    finally:
        process.cpu_affinity(allowed)
    assert num_cores() == len(allowed)


def test_tree_outside_git_has_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without git, or a folder outside it, gives None."""
    monkeypatch.delenv("SEED_GIT_COMMIT", raising=False)
    monkeypatch.setenv("PATH", "")
    assert git_commit() is None
    assert provenance("catch-vtrace")["git_commit"] is None
