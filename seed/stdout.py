"""What is written to standard output: with --json one result, and nothing of anybody else's.

Users' environments, agents and observers print, and so do the libraries that they use, some of
them in native code. Used by the main thread of each process.
"""

import atexit
import contextlib
import io
import json
import logging
import math
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

_STDOUT, _STDERR = 1, 2

_LOG = logging.getLogger(__name__)


# The real standard output, while `stdout_to_stderr` sends everything else to stderr.
_put_aside: TextIO | None = None


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Sends to stderr what this process, and those it starts, write to stdout in the context.

    Only `print_json` still writes to stdout.
    """
    global _put_aside
    text = sys.stdout
    if text is None:  # the process was started without one
        yield
        return
    text.flush()
    with os.fdopen(os.dup(_STDOUT), "w") as stdout, contextlib.redirect_stdout(sys.stderr):
        os.dup2(_STDERR, _STDOUT)
        _put_aside = stdout
        try:
            yield
        finally:
            _put_aside = None
            text.flush()  # a module may have kept it
            os.dup2(stdout.fileno(), _STDOUT)


def print_json(result: Mapping[str, Any], *, indent: int | None = None) -> None:
    """Prints the one result of a command. What is written to stdout later goes to stderr.

    A number that is not finite is written as null: JSON has no NaN.
    """
    print(json.dumps(_finite(result), allow_nan=False, indent=indent), file=_put_aside, flush=True)
    # Functions that other modules have registered run after this one, and may print.
    atexit.register(os.dup2, _STDERR, _STDOUT)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_finite(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_whole_lines() -> None:
    """Makes each printed line reach a file at once, in order with what is written to stderr."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)


def log_stdout() -> None:
    """Turns each line that is written to stdout from now on into a record of the log.

    For a process beside the one that has the terminal: its lines would tear the live view.
    """
    reading, writing = os.pipe()
    os.dup2(writing, _STDOUT)
    os.close(writing)
    write_whole_lines()
    threading.Thread(target=_log_lines, args=(reading,), name="stdout", daemon=True).start()


def _log_lines(descriptor: int) -> None:
    with os.fdopen(descriptor, errors="replace") as lines:
        for line in lines:
            _LOG.info("%s", line.rstrip("\n"))
