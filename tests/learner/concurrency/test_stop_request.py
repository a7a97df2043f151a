"""The wish that a process ends: how it is noticed, and when the signals go back."""

import signal

import pytest

from learner.concurrency.stop_request import StopRequest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_is_noticed_and_does_not_interrupt(number: signal.Signals) -> None:
    """Ctrl-C raises no KeyboardInterrupt; SIGTERM and a closed terminal do not end the process."""
    with StopRequest() as stop:
        assert not stop.requested
        signal.raise_signal(number)
        assert stop.requested


def test_signals_go_back_to_their_former_handlers() -> None:
    """The end of the context restores them, also after an error."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    former = [signal.getsignal(number) for number in numbers]
    with pytest.raises(RuntimeError), StopRequest():
        assert [signal.getsignal(number) for number in numbers] != former
        raise RuntimeError
    assert [signal.getsignal(number) for number in numbers] == former


def test_hangup_that_nohup_ignores_stays_ignored() -> None:
    """The run goes on after the user has closed the terminal."""
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopRequest() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop.requested
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, former)


def test_interrupt_that_a_shell_ignores_in_the_background_is_noticed() -> None:
    """A program that starts learners stops them by SIGINT, also those in the background."""
    former = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with StopRequest() as stop:
            signal.raise_signal(signal.SIGINT)
            assert stop.requested
    finally:
        signal.signal(signal.SIGINT, former)
