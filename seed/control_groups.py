"""The control groups that this process is in, which bound its cores and memory in a container.

Used where a default depends on what this process may take: threads, workers, a replay's memory.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/")


class Group(NamedTuple):
    """A control group that this process is in, or one around it."""

    directory: Path
    version: int
    """1 or 2: the names of the files in the directory differ."""


def groups_of(controller: str, root: Path = ROOT) -> Iterator[Group]:
    """Yields the groups that may limit `controller` ("cpu", "memory"), innermost first.

    Inside a container the path may be the host's name of the group, and no directory here has
    that name. The mount's own directory is then the container's group. Systems other than Linux
    have no groups.

    Args:
      root: directory with the kernel's proc and sys; a test passes its own.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        hierarchy, controllers, path = line.split(":", 2)
        if hierarchy == "0":
            mounts, version = ["."], 2
        elif controller in controllers.split(","):
            # A hierarchy of several controllers has their names, and one link or none to each.
            mounts, version = dict.fromkeys([controller, controllers]), 1
        else:
            continue
        for name in mounts:
            mount = root / "sys/fs/cgroup" / name
            inner = mount / path.lstrip("/")
            for directory in (inner, *inner.parents):
                yield Group(directory, version)
                if directory == mount:
                    break
