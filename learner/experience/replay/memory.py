"""How much memory this process may still take. Called once, before a replay is filled."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

GIB = 1 << 30


class _GroupFiles(NamedTuple):
    """Names of a control group's files, and of what the kernel can take back at once."""

    limit: str
    usage: str
    reclaimable: str


_VERSION_1 = _GroupFiles("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2 = _GroupFiles("memory.max", "memory.current", "inactive_file")


def available_memory_bytes(root: Path = Path("/")) -> int:
    """Returns the least that the machine or any control group around this process has left.

    Args:
      root: Where proc and sys are; a test's own, or the machine's.
    """
    left = [_left_in_group(*group) for group in _groups(root)]
    return min([_left_on_machine(root), *(x for x in left if x is not None)])


def _left_on_machine(root: Path) -> int:
    meminfo = root / "proc/meminfo"
    if not meminfo.exists():  # not Linux: all there is, for lack of better
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024


def _groups(root: Path) -> Iterator[tuple[Path, _GroupFiles]]:
    """Yields the memory control groups that this process is in, innermost first.

    Inside a container the path may be the host's, which is not to be found here; the
    mount's own directory then is the container's group.
    """
    membership = root / "proc/self/cgroup"
    if not membership.exists():
        return
    for line in membership.read_text().splitlines():
        hierarchy, controllers, path = line.split(":", 2)
        if hierarchy == "0":
            mount, files = root / "sys/fs/cgroup", _VERSION_2
        elif "memory" in controllers.split(","):
            mount, files = root / "sys/fs/cgroup/memory", _VERSION_1
        else:
            continue
        inner = mount / path.lstrip("/")
        for directory in (inner, *inner.parents):
            yield directory, files
            if directory == mount:
                break


def _left_in_group(directory: Path, files: _GroupFiles) -> int | None:
    """Returns the bytes left under the group's own limit; None if it has none."""
    limit, usage = directory / files.limit, directory / files.usage
    if not (limit.exists() and usage.exists()) or limit.read_text().strip() == "max":
        return None
    used = int(usage.read_text()) - _reclaimable(directory / "memory.stat", files.reclaimable)
    return max(int(limit.read_text()) - used, 0)


def _reclaimable(statistics: Path, field: str) -> int:
    """Returns the bytes of files read and written that a group holds only for speed."""
    if not statistics.exists():
        return 0
    return int(dict(line.split() for line in statistics.read_text().splitlines()).get(field, 0))
