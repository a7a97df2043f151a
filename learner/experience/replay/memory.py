"""How much memory this process may still take. Called once, before a replay is filled.

psutil knows what the machine has left, but not the limits of control groups, which a container
has. This module reads those.
"""

from pathlib import Path
from typing import NamedTuple

import psutil

from seed.control_groups import ROOT, groups_of

GIB = 1 << 30


class _GroupFiles(NamedTuple):
    """Names of a control group's files, and of a field in its memory.stat."""

    limit: str
    usage: str
    reclaimable: str
    """Field with the bytes of cached files, which the kernel can drop at once."""


_VERSION_1 = _GroupFiles("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2 = _GroupFiles("memory.max", "memory.current", "inactive_file")


def available_memory_bytes(root: Path = ROOT) -> int:
    """Returns the least that the machine or any control group around this process has left.

    Args:
      root: directory with the control groups' proc and sys; a test passes its own.
    """
    left = [
        _left_in_group(directory, _VERSION_2 if version == 2 else _VERSION_1)
        for directory, version in groups_of("memory", root)
    ]
    return min([psutil.virtual_memory().available, *(x for x in left if x is not None)])


def _left_in_group(directory: Path, files: _GroupFiles) -> int | None:
    """Returns the bytes left under the group's own limit; None if it has none."""
    limit, usage = directory / files.limit, directory / files.usage
    if not (limit.exists() and usage.exists()) or limit.read_text().strip() == "max":
        return None
    used = int(usage.read_text()) - _reclaimable(directory / "memory.stat", files.reclaimable)
    return max(int(limit.read_text()) - used, 0)


def _reclaimable(statistics: Path, field: str) -> int:
    """Returns the bytes of cached files that count as the group's, though they can be dropped."""
    if not statistics.exists():
        return 0
    return int(dict(line.split() for line in statistics.read_text().splitlines()).get(field, 0))
