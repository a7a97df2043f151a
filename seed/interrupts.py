"""What Ctrl-C does to a command before it runs, and to the processes that it starts.

Called in the main thread of a process. Commands that have something to save or to end take the
signal over once they run: see `learner/concurrency/stop_request.py`.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator

EXIT_CODE = 128 + signal.SIGINT
"""Of a command that Ctrl-C has ended before it had anything to save."""


def end_at_once(program: str) -> None:
    """From now on Ctrl-C prints one line and ends this process.

    A KeyboardInterrupt would not do: while modules are imported, torch and NumPy turn it into
    other errors, and Python prints its traceback.
    """

    def end(*_: object) -> None:
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, _line(program).encode())
        os._exit(EXIT_CODE)

    signal.signal(signal.SIGINT, end)


def raise_again() -> None:
    """From now on Ctrl-C raises KeyboardInterrupt again, so that `finally` clauses run."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def ignore() -> None:
    """From now on Ctrl-C does nothing: the process ends within moments anyway."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def report(program: str) -> int:
    """Prints the line of an interrupted command; returns its exit code."""
    print(_line(program), end="", file=sys.stderr)
    return EXIT_CODE


@contextlib.contextmanager
def kept_from_children() -> Iterator[None]:
    """Processes started inside do not get Ctrl-C, which a terminal sends to all of a command.

    The command itself ends them. A handler in the child would come too late: while it imports its
    modules, it would print a traceback. Systems without signal masks change nothing.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    former = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def let_through() -> None:
    """Undoes `kept_from_children` in a child, so that its own children get Ctrl-C as usual."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _line(program: str) -> str:
    return f"{program}: interrupted\n"
