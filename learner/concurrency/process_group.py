"""Ends the processes that an ended process has left behind.

Called by the process that started it in a group of its own.
"""

import contextlib
import os
import signal


def end_group(group: int) -> None:
    """Kills what is left of a process group; does nothing if nothing is left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def name_of_signal(number: int) -> str:
    """Returns "signal 9 (SIGKILL)"; the number alone for a signal without a name."""
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
