"""What a process or a thread of it has used of the processor (Linux)."""

import os
from pathlib import Path


def cpu_seconds_of(pid: int) -> float:
    """Returns the CPU seconds, user and system, that a process has used.

    Raises:
      OSError: there is no such process.
    """
    return _cpu_seconds(Path(f"/proc/{pid}/stat"))


def cpu_seconds_of_thread(pid: int, thread_id: int) -> float:
    """Returns the same of one thread, by its native id."""
    return _cpu_seconds(Path(f"/proc/{pid}/task/{thread_id}/stat"))


def _cpu_seconds(stat: Path) -> float:
    # The command's name, in parentheses, may hold spaces: count from behind it.
    fields = stat.read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
