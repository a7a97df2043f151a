"""Errors of `seed.errors` as gRPC statuses, and back.

Used on both sides, where a call is answered and where its answer arrives. The one place that
knows both; a module of its own, because gRPC takes longer to import than `seed --help` to run.
"""

import grpc

from seed.errors import (
    AccessError,
    ConfigError,
    IncompatibleError,
    LearnerUnavailableError,
    RunCompleteError,
    SeedError,
    SilenceError,
    SpecError,
    WireError,
)

_STATUS_OF: dict[type[SeedError], grpc.StatusCode] = {
    WireError: grpc.StatusCode.INVALID_ARGUMENT,
    SpecError: grpc.StatusCode.INVALID_ARGUMENT,
    ConfigError: grpc.StatusCode.INVALID_ARGUMENT,
    IncompatibleError: grpc.StatusCode.FAILED_PRECONDITION,
    AccessError: grpc.StatusCode.UNAUTHENTICATED,
    SilenceError: grpc.StatusCode.DEADLINE_EXCEEDED,
    LearnerUnavailableError: grpc.StatusCode.UNAVAILABLE,
    RunCompleteError: grpc.StatusCode.OUT_OF_RANGE,
}

# Errors after which an actor can only retry: the learner is away, overloaded or restarting.
_TRANSIENT = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
    }
)


def status_of(error: SeedError) -> grpc.StatusCode:
    """Returns the gRPC status that carries `error` to the other side."""
    for cls in type(error).__mro__:
        if cls in _STATUS_OF:
            return _STATUS_OF[cls]
    return grpc.StatusCode.INTERNAL


def error_from_status(code: grpc.StatusCode, details: str) -> SeedError:
    """Returns the error an actor raises for the status that ended its call.

    Transient statuses become `LearnerUnavailableError` (wait and retry), the
    others the error that the learner raised (report it and give up).
    """
    if code in _TRANSIENT:
        return LearnerUnavailableError(f"{code.name}: {details}")
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        return WireError(details)
    if code is grpc.StatusCode.OUT_OF_RANGE:
        return RunCompleteError(details)
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return AccessError(details)
    return IncompatibleError(f"{details} ({code.name})")
