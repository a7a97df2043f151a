"""How many cores this process may use, which may be fewer than the machine has.

Everything that chooses a number of threads or workers asks here.
"""

import math
import os
from collections.abc import Mapping
from pathlib import Path

from seed.control_groups import ROOT, Group, groups_of


def usable_cores(root: Path = ROOT, environment: Mapping[str, str] = os.environ) -> int:
    """Returns the least of these that there are, and at least 1:

    - the cores that the process is pinned to (taskset, cpusets), else those of the machine;
    - the quotas of its control groups, rounded up (containers, systemd);
    - the cores of a SLURM task, on clusters where SLURM does not pin.

    Args:
      root: directory with the kernel's proc and sys; a test passes its own.
      environment: the variables of this process.
    """
    limits = [_pinned_cores(), *_quotas(root)]
    of_task = environment.get("SLURM_CPUS_PER_TASK", "")
    if of_task.isdecimal():
        limits.append(int(of_task))
    return max(math.ceil(min(limits)), 1)


def limit_native_threads() -> None:
    """Makes numerical libraries start no more threads than there are usable cores.

    They count the machine's cores or the pinned ones, but know no quota. Call it before they are
    imported. A value that the user has set stays; processes that this one starts inherit it.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(usable_cores()))


def _pinned_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS pins no process


def _quotas(root: Path) -> list[float]:
    """Returns the quotas of all groups around this process, in cores."""
    quotas = (_quota_of(group) for group in groups_of("cpu", root))
    return [quota for quota in quotas if quota is not None]


def _quota_of(group: Group) -> float | None:
    """Returns a group's quota in cores; None if it has none."""
    try:
        if group.version == 2:
            quota, period = (group.directory / "cpu.max").read_text().split()
        else:
            quota = (group.directory / "cpu.cfs_quota_us").read_text()
            period = (group.directory / "cpu.cfs_period_us").read_text()
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):  # no such file, or "max"
        return None
