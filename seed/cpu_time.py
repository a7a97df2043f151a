"""What a process has used of the processor, for benchmarks (Linux)."""

import os
from pathlib import Path


def cpu_seconds_of(pid: int) -> float:
    """Returns the CPU seconds, user and system, that a process has used."""
    # The command's name, in parentheses, may hold spaces: count from behind it.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
