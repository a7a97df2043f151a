"""Calls between processes return results and errors, and fail when the other process ends."""

import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection

import pytest

from learner.concurrency.pipe_rpc import Caller, OtherProcessError, serve_calls
from learner.concurrency.stopping import Stopped
from seed.errors import CheckpointError, ConfigError, expected
from tests.learner.builders import TIMEOUT_S, in_thread


def divide(dividend: float, divisor: float) -> float:
    """Raises ZeroDivisionError where the divisor is 0."""
    return dividend / divisor


def refuse(field: str) -> None:
    """Raises an error that a user is to read."""
    raise ConfigError(expected(field, "something else", "this"))


@pytest.fixture
def ends() -> Iterator[tuple[Connection, Connection]]:
    """Returns both ends of a pipe."""
    ours, theirs = multiprocessing.Pipe()
    yield ours, theirs
    ours.close()
    theirs.close()


def test_result_comes_back_and_the_server_ends_with_its_caller(
    ends: tuple[Connection, Connection],
) -> None:
    """The server answers any number of calls until the caller closes."""
    serving = in_thread(lambda: serve_calls(ends[1], {"divide": divide}))
    call = Caller(ends[0])
    assert [call("divide", 6, divisor) for divisor in (1, 2, 3)] == [6, 3, 2]
    call.close()
    serving.result(TIMEOUT_S)


def test_users_error_comes_back_as_itself(ends: tuple[Connection, Connection]) -> None:
    """The command line then prints it without a traceback, wherever it was raised."""
    in_thread(lambda: serve_calls(ends[1], {"refuse": refuse}))
    with pytest.raises(ConfigError, match="^lstm_size: expected something else, got this$"):
        Caller(ends[0])("refuse", "lstm_size")


def test_other_error_comes_back_with_its_traceback(ends: tuple[Connection, Connection]) -> None:
    """The traceback comes as text, and the server goes on."""
    in_thread(lambda: serve_calls(ends[1], {"divide": divide}))
    call = Caller(ends[0])
    with pytest.raises(OtherProcessError) as caught:
        call("divide", 1, 0)
    assert "in divide" in str(caught.value)
    assert str(caught.value).endswith("ZeroDivisionError: division by zero")
    assert call("divide", 1, 2) == 0.5


def test_caller_is_told_when_the_server_has_ended(ends: tuple[Connection, Connection]) -> None:
    """A process that is killed closes its end of the pipe."""
    ends[1].close()
    with pytest.raises(Stopped):
        Caller(ends[0])("divide", 1, 2)


def test_users_errors_survive_the_journey() -> None:
    """They are pickled with their message alone."""
    ours, theirs = multiprocessing.Pipe()
    ours.send(CheckpointError("checkpoints: expected a file, got none"))
    received = theirs.recv()
    assert isinstance(received, CheckpointError)
    assert str(received) == "checkpoints: expected a file, got none"
