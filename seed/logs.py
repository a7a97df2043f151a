"""The log as JSON, for programs that collect logs; for people each process has its own format.

Used by the main thread of each process.
"""

import contextlib
import copy
import datetime
import json
import logging
from collections.abc import Callable, Iterator
from typing import Literal

from seed.errors import EnvironmentFailedError, SeedError

LogFormat = Literal["text", "json"]


class JsonFormatter(logging.Formatter):
    """One JSON object a line and a record: time, level, process, message, exception."""

    def __init__(self, process: str) -> None:
        """`process`: "learner" or "actor"."""
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Returns the record as one line; `exception` only where there is a traceback."""
        time = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        fields = {
            "time": time.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "process": self._process,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        elif record.exc_text:  # a record of another process has only the text
            fields["exception"] = record.exc_text
        return json.dumps(fields)


def portable_record(record: logging.LogRecord) -> logging.LogRecord:
    """Returns a copy for another process to handle: message and traceback as two texts."""
    portable = copy.copy(record)
    portable.msg, portable.args = record.getMessage(), None
    if record.exc_info:
        portable.exc_text = logging.Formatter().formatException(record.exc_info)
        portable.exc_info = None
    return portable


def forward_log(send: Callable[[logging.LogRecord], object]) -> None:
    """Sends every later log record of this process to the process that writes the log.

    The receiver passes each record to `take_record`.
    """

    class Forwarding(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            try:
                send(portable_record(record))
            except Exception:
                self.handleError(record)

    root = logging.getLogger()
    root.setLevel(logging.INFO)
    root.addHandler(Forwarding())


def take_record(record: logging.LogRecord) -> None:
    """Logs here what another process forwarded."""
    logging.getLogger(record.name).handle(record)


@contextlib.contextmanager
def json_log(process: str) -> Iterator[None]:
    """Writes all records to stderr as JSON inside the context.

    An error that ends the context is logged last, then raised: the caller turns it into an
    exit code.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter(process))
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    root.addHandler(handler)
    try:
        yield
    except Exception as error:
        # An error that the user can fix is logged without a traceback, as on a terminal.
        is_plain = isinstance(error, SeedError) and not isinstance(error, EnvironmentFailedError)
        root.critical("%s", error, exc_info=None if is_plain else error)
        raise
    finally:
        root.removeHandler(handler)
