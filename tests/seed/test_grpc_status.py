"""Every error has a status or never leaves its process; every status has an error."""

import grpc
import pytest

from seed import errors
from seed.errors import (
    AccessError,
    CheckpointError,
    ConfigError,
    EnvironmentFailedError,
    IncompatibleError,
    LearnerUnavailableError,
    NonFiniteLossError,
    RunCompleteError,
    RunInUseError,
    SeedError,
    SilenceError,
    SpecError,
    WireError,
)
from seed.grpc_status import error_from_status, status_of

# Raised by a learner to an actor.
REMOTE = {
    WireError: grpc.StatusCode.INVALID_ARGUMENT,
    SpecError: grpc.StatusCode.INVALID_ARGUMENT,
    ConfigError: grpc.StatusCode.INVALID_ARGUMENT,
    IncompatibleError: grpc.StatusCode.FAILED_PRECONDITION,
    AccessError: grpc.StatusCode.UNAUTHENTICATED,
    SilenceError: grpc.StatusCode.DEADLINE_EXCEEDED,
    LearnerUnavailableError: grpc.StatusCode.UNAVAILABLE,
    RunCompleteError: grpc.StatusCode.OUT_OF_RANGE,
}

# Never raised as the answer to a call.
LOCAL = {CheckpointError, EnvironmentFailedError, NonFiniteLossError, RunInUseError}


def tree_below(cls: type[SeedError]) -> set[type[SeedError]]:
    """Returns every class derived from `cls` in seed/errors.py."""
    below = set()
    for child in cls.__subclasses__():
        if child.__module__ == errors.__name__:
            below |= {child} | tree_below(child)
    return below


def test_every_class_has_a_status_or_is_local() -> None:
    """A class that is missing here would reach an actor as INTERNAL."""
    assert tree_below(SeedError) == REMOTE.keys() | LOCAL


@pytest.mark.parametrize("cls", REMOTE, ids=lambda cls: cls.__name__)
def test_error_travels_under_its_status(cls: type[SeedError]) -> None:
    """This includes classes derived from it elsewhere."""
    assert status_of(cls("x")) is REMOTE[cls]
    derived = type("Derived", (cls,), {})
    assert status_of(derived("x")) is REMOTE[cls]


def test_error_without_a_status_is_internal() -> None:
    """An actor can only retry."""
    assert status_of(SeedError("x")) is grpc.StatusCode.INTERNAL


@pytest.mark.parametrize(
    "code",
    [
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
    ],
    ids=lambda code: code.name,
)
def test_transient_statuses_are_to_be_retried(code: grpc.StatusCode) -> None:
    """The learner is away, overloaded or restarting."""
    error = error_from_status(code, "gone")
    assert isinstance(error, LearnerUnavailableError)
    assert str(error) == f"{code.name}: gone"


@pytest.mark.parametrize(
    "code",
    [
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    ],
    ids=lambda code: code.name,
)
def test_other_statuses_end_the_actor(code: grpc.StatusCode) -> None:
    """A retry would get the same answer, and the message names the status."""
    error = error_from_status(code, "protocol_version: expected 1, got 2")
    assert isinstance(error, IncompatibleError)
    assert str(error) == f"protocol_version: expected 1, got 2 ({code.name})"


@pytest.mark.parametrize("cls", REMOTE, ids=lambda cls: cls.__name__)
def test_refusal_keeps_its_words_and_its_kind(cls: type[SeedError]) -> None:
    """The actor reads the learner's own words, and an actor that was too slow may retry."""
    received = error_from_status(status_of(cls("a: expected b, got c")), "a: expected b, got c")
    assert "a: expected b, got c" in str(received)
    for_good = cls not in (LearnerUnavailableError, SilenceError)
    assert isinstance(received, LearnerUnavailableError) is not for_good


@pytest.mark.parametrize("code", grpc.StatusCode, ids=lambda code: code.name)
def test_no_status_is_left_untranslated(code: grpc.StatusCode) -> None:
    """A code that a later gRPC adds fails this test."""
    assert isinstance(error_from_status(code, "x"), SeedError)
