"""Every error a user can cause, and its translation: to an exit code, to and from gRPC status.

    SeedError
    |-- ConfigError            a flag, file or environment setting that cannot work
    |-- SpecError              spaces or shapes that this system cannot serve
    |-- WireError              a message that breaks protos/inference.proto
    |-- IncompatibleError      two sides that differ in version, specs or shapes
    |-- AccessError            a side that does not prove its identity, or does not speak TLS
    |-- SilenceError           a peer that sends nothing for too long
    |-- LearnerUnavailableError  no learner answers at the address, for now
    |-- NonFiniteLossError     training whose losses or gradients are no longer finite
    |-- CheckpointError        a checkpoint that is missing, torn or of another run
    `-- EnvironmentFailedError an environment that keeps raising

Only `status_of` and `error_from_status` know gRPC; everything else raises and
catches these classes. Messages read "<field>: expected ..., got ...".
"""

import functools
import sys
from collections.abc import Callable, Sequence

import grpc


class SeedError(Exception):
    """Base of everything below; the command line prints it without a traceback."""


class ConfigError(SeedError, ValueError):
    """A flag, file or environment setting that cannot work."""


class SpecError(SeedError, ValueError):
    """Spaces, dtypes or shapes that this system cannot serve."""


class WireError(SeedError, ValueError):
    """A message that breaks the wire contract."""


class IncompatibleError(SeedError):
    """An actor and a learner that do not fit each other."""


class AccessError(SeedError):
    """A side that does not prove its identity, or does not speak TLS where the other side does."""


class SilenceError(SeedError):
    """A peer that sends nothing for too long."""


class LearnerUnavailableError(SeedError):
    """No learner answers at the address, for now."""


class NonFiniteLossError(SeedError):
    """Training whose losses or gradients are no longer finite."""


class CheckpointError(SeedError):
    """A checkpoint that is missing, torn, or of another run."""


class EnvironmentFailedError(SeedError):
    """An environment that keeps raising."""


def expected(field: str, wanted: object, got: object) -> str:
    """Returns the one form of sentence in which every refusal is worded."""
    return f"{field}: expected {wanted}, got {got}"


def require(condition: bool, field: str, wanted: str, got: object) -> None:
    """Raises ConfigError, naming `field`, unless `condition` holds."""
    if not condition:
        raise ConfigError(expected(field, wanted, repr(got)))


Main = Callable[[Sequence[str]], int]


def exits_on_error(program: str) -> Callable[[Main], Main]:
    """Decorates a `main`: prints a SeedError as "<program>: <error>" to stderr and returns 1."""

    def decorate(main: Main) -> Main:
        @functools.wraps(main)
        def run(argv: Sequence[str]) -> int:
            try:
                return main(argv)
            except SeedError as error:
                print(f"{program}: {error}", file=sys.stderr)
                return 1

        return run

    return decorate


_STATUS_OF: dict[type[SeedError], grpc.StatusCode] = {
    WireError: grpc.StatusCode.INVALID_ARGUMENT,
    SpecError: grpc.StatusCode.INVALID_ARGUMENT,
    ConfigError: grpc.StatusCode.INVALID_ARGUMENT,
    IncompatibleError: grpc.StatusCode.FAILED_PRECONDITION,
    AccessError: grpc.StatusCode.UNAUTHENTICATED,
    SilenceError: grpc.StatusCode.DEADLINE_EXCEEDED,
    LearnerUnavailableError: grpc.StatusCode.UNAVAILABLE,
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
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return AccessError(details)
    return IncompatibleError(f"{details} ({code.name})")
