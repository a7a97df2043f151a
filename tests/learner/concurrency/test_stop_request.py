"""The wish that a process ends: how it is noticed, and when the signals go back."""

import signal

import pytest

from learner.concurrency.stop_request import StopRequest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_is_noticed_and_does_not_interrupt(number: signal.Signals) -> None:
    """Ctrl-C raises no KeyboardInterrupt, and SIGTERM does not end the process."""
    with StopRequest() as stop:
        assert not stop.requested
        signal.raise_signal(number)
        assert stop.requested


def test_signals_go_back_to_their_former_handlers() -> None:
    """The end of the context restores them, also after an error."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    former = [signal.getsignal(number) for number in numbers]
    with pytest.raises(RuntimeError), StopRequest():
        assert [signal.getsignal(number) for number in numbers] != former
        raise RuntimeError
    assert [signal.getsignal(number) for number in numbers] == former
