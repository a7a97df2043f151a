"""The control groups around this process, as the kernel's files name them."""

from pathlib import Path

import pytest

from seed.control_groups import groups_of


def groups(root: Path, membership: str, controller: str = "cpu") -> list[tuple[str, int]]:
    """Returns the groups of a process by their paths below /sys/fs/cgroup, with the version."""
    file = root / "proc/self/cgroup"
    file.parent.mkdir(parents=True)
    file.write_text(membership)
    mount = root / "sys/fs/cgroup"
    found = groups_of(controller, root)
    return [(str(group.directory.relative_to(mount)), group.version) for group in found]


def test_system_without_groups_has_none(tmp_path: Path) -> None:
    """Systems other than Linux have no such files."""
    assert list(groups_of("cpu", tmp_path)) == []


def test_groups_of_the_unified_hierarchy_are_yielded_innermost_first(tmp_path: Path) -> None:
    """A group's limit holds for those inside it."""
    assert groups(tmp_path, "0::/a/b\n") == [("a/b", 2), ("a", 2), (".", 2)]


@pytest.mark.parametrize("path", ["/", "/.."])
def test_container_is_in_the_group_of_the_mount(tmp_path: Path, path: str) -> None:
    """With a namespace of its own it sees no other group."""
    assert (".", 2) in groups(tmp_path, f"0::{path}\n")


def test_controller_of_version_1_has_its_own_hierarchy(tmp_path: Path) -> None:
    """Other controllers do not count, not even with the same beginning."""
    membership = "9:name=systemd:/s\n4:memory:/m\n3:cpuset:/x\n2:cpuacct:/y\n1:cpu:/a\n"
    assert groups(tmp_path, membership) == [("cpu/a", 1), ("cpu", 1)]


def test_hierarchy_of_several_controllers_has_their_names(tmp_path: Path) -> None:
    """Not every system links the single names to it."""
    found = groups(tmp_path, "4:cpu,cpuacct:/a\n")
    assert found == [("cpu/a", 1), ("cpu", 1), ("cpu,cpuacct/a", 1), ("cpu,cpuacct", 1)]
