"""Every error that a user can cause, and the exit code of a command that it ends.

    SeedError
    |-- ConfigError            a flag, file or environment setting that cannot work
    |-- SpecError              spaces or shapes that this system cannot serve
    |-- WireError              a message that breaks protos/inference.proto
    |-- IncompatibleError      two sides that differ in version, specs or shapes
    |-- AccessError            a side that does not prove its identity, or does not speak TLS
    |-- SilenceError           a peer that sends nothing for too long
    |-- LearnerUnavailableError  no learner answers at the address, for now
    |-- RunInUseError          another learner uses the run directory, for now
    |-- RunCompleteError       the learner's run has spent its budget: no more steps are wanted
    |-- NonFiniteLossError     training whose losses or gradients are no longer finite
    |-- CheckpointError        a checkpoint that is missing, torn or of another run
    `-- EnvironmentFailedError an environment that keeps raising

Everything raises and catches these classes; only `seed.grpc_status` knows gRPC's. Messages
read "<field>: expected ..., got ...".
"""

import functools
import sys
from collections.abc import Callable, Sequence


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


class RunInUseError(SeedError):
    """Another learner uses the run directory, for now."""


class RunCompleteError(SeedError):
    """The learner's run has spent its budget: it wants no more steps."""


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


def exit_code_of(error: BaseException) -> int:
    """Returns the exit code of a command that `error` ends.

    2 for a flag, file or setting that cannot work, as for a flag that does not exist: a supervisor
    need not start the command again. 1 for any other error.
    """
    return 2 if isinstance(error, ConfigError) else 1


Main = Callable[[Sequence[str]], int]


def exits_on_error(program: str) -> Callable[[Main], Main]:
    """Decorates a `main`: prints a SeedError as "<program>: <error>"; see `exit_code_of`."""

    def decorate(main: Main) -> Main:
        @functools.wraps(main)
        def run(argv: Sequence[str]) -> int:
            try:
                return main(argv)
            except SeedError as error:
                print(f"{program}: {error}", file=sys.stderr)
                return exit_code_of(error)

        return run

    return decorate
