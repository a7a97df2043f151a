"""The memory that is left: psutil's figure for the machine, and the files of control groups."""

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from learner.experience.replay.memory import available_memory_bytes

MIB = 1 << 20
ON_MACHINE = 100 * MIB


@pytest.fixture(autouse=True)
def machine_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes psutil report `ON_MACHINE` bytes available."""
    memory = SimpleNamespace(available=ON_MACHINE)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)


def machine(root: Path, files: dict[str, str]) -> Path:
    """Writes the kernel's files below `root`, and returns `root`."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def version_2(group: str, limit: object, used: int, reclaimable: int = 0) -> dict[str, str]:
    """Returns the files of a group of the unified hierarchy."""
    directory = f"sys/fs/cgroup/{group}".rstrip("/")
    return {
        f"{directory}/memory.max": f"{limit}\n",
        f"{directory}/memory.current": f"{used}\n",
        f"{directory}/memory.stat": f"anon 5\ninactive_file {reclaimable}\n",
    }


def version_1(group: str, limit: int, used: int) -> dict[str, str]:
    """Returns the files of a group of the memory controller's own hierarchy."""
    directory = f"sys/fs/cgroup/memory/{group}".rstrip("/")
    return {
        f"{directory}/memory.limit_in_bytes": f"{limit}\n",
        f"{directory}/memory.usage_in_bytes": f"{used}\n",
        f"{directory}/memory.stat": "cache 5\ntotal_inactive_file 0\n",
    }


def in_group(path: str) -> dict[str, str]:
    """Returns the content of the file that names our group of the unified hierarchy."""
    return {"proc/self/cgroup": f"0::{path}\n"}


def test_machine_without_groups_has_what_psutil_says(tmp_path: Path) -> None:
    """Systems other than Linux have no groups."""
    assert available_memory_bytes(tmp_path) == ON_MACHINE


@pytest.mark.parametrize("path", ["/a/b", "/a", "/a/b/c"])
def test_limit_of_a_group_holds_for_all_groups_inside(tmp_path: Path, path: str) -> None:
    """The limit may be that of our own group or of one around it."""
    root = machine(tmp_path, in_group(path) | version_2("a", 50 * MIB, 30 * MIB))
    assert available_memory_bytes(root) == 20 * MIB


def test_tightest_of_all_groups_counts(tmp_path: Path) -> None:
    """An inner group cannot have more than the one around it."""
    groups = version_2("a", 50 * MIB, 45 * MIB) | version_2("a/b", 40 * MIB, 10 * MIB)
    root = machine(tmp_path, in_group("/a/b") | groups)
    assert available_memory_bytes(root) == 5 * MIB


def test_machine_may_have_less_than_the_group_allows(tmp_path: Path) -> None:
    """A group's limit is often larger than the machine's memory."""
    files = in_group("/a") | version_2("a", 1 << 62, 0)
    assert available_memory_bytes(machine(tmp_path, files)) == ON_MACHINE


def test_group_without_a_limit_is_no_limit(tmp_path: Path) -> None:
    """The kernel writes "max" where there is no limit."""
    root = machine(tmp_path, in_group("/a") | version_2("a", "max", 30 * MIB))
    assert available_memory_bytes(root) == ON_MACHINE


def test_container_finds_its_limit_without_the_path_of_the_host(tmp_path: Path) -> None:
    """A container sees its own group as the root, and may be told the host's path of it."""
    files = in_group("/docker/0123") | version_2("", 50 * MIB, 30 * MIB)
    assert available_memory_bytes(machine(tmp_path, files)) == 20 * MIB


def test_files_that_the_kernel_can_drop_are_not_in_use(tmp_path: Path) -> None:
    """Else the cache of a dataset would leave no room for a replay."""
    root = machine(tmp_path, in_group("/a") | version_2("a", 50 * MIB, 40 * MIB, 15 * MIB))
    assert available_memory_bytes(root) == 25 * MIB


def test_group_beyond_its_limit_has_nothing_left(tmp_path: Path) -> None:
    """The figure is 0, not negative."""
    root = machine(tmp_path, in_group("/a") | version_2("a", 50 * MIB, 60 * MIB))
    assert available_memory_bytes(root) == 0


def test_older_hierarchy_of_the_memory_controller_counts(tmp_path: Path) -> None:
    """The hierarchies of other controllers are ignored."""
    membership = "9:name=systemd:/s\n4:cpu,memory:/a/b\n2:cpu:/c\n0::/\n"
    files = {"proc/self/cgroup": membership} | version_1("a", 50 * MIB, 30 * MIB)
    assert available_memory_bytes(machine(tmp_path, files)) == 20 * MIB


def test_this_machine_has_some_memory_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test reads psutil and the kernel's files of this machine."""
    monkeypatch.undo()
    assert MIB < available_memory_bytes() <= psutil.virtual_memory().total
