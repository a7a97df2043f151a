"""The cores that a process may use: pinned, limited by quotas, or given by SLURM."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from seed import cores
from seed.cores import limit_native_threads, usable_cores

ROOT = Path(__file__).parents[2]

# Of this machine, read before any test pretends another one.
FIRST_CORE = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0


@pytest.fixture(autouse=True)
def pinned_to_8(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the system report 8 cores."""
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda pid: range(8), raising=False)


def machine(root: Path, membership: str, files: dict[str, str]) -> Path:
    """Writes the kernel's files below `root`, and returns `root`."""
    files = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    for name, text in (files | {"proc/self/cgroup": membership}).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_machine_without_groups_has_its_cores(tmp_path: Path) -> None:
    """Systems other than Linux have neither groups nor pinned processes."""
    assert usable_cores(tmp_path, {}) == 8


@pytest.mark.parametrize(
    ("quota", "wanted"),
    [
        ("200000 100000", 2),
        ("150000 100000", 2),
        ("50000 100000", 1),
        ("1000 100000", 1),
        ("300000 50000", 6),
        ("6400000 100000", 8),
        ("max 100000", 8),
        ("", 8),
        ("max", 8),
    ],
)
def test_quota_counts_rounded_up(tmp_path: Path, quota: str, wanted: int) -> None:
    """There is at least one core, and never more than the process is pinned to."""
    root = machine(tmp_path, "0::/a\n", {"a/cpu.max": f"{quota}\n"})
    assert usable_cores(root, {}) == wanted


def test_tightest_group_counts(tmp_path: Path) -> None:
    """Kubernetes limits the pod and each container in it."""
    quotas = {"a/cpu.max": "300000 100000", "a/b/cpu.max": "max 100000", "cpu.max": "max 100000"}
    assert usable_cores(machine(tmp_path, "0::/a/b/c\n", quotas), {}) == 3
    quotas["a/b/cpu.max"] = "200000 100000"
    assert usable_cores(machine(tmp_path, "0::/a/b/c\n", quotas), {}) == 2


@pytest.mark.parametrize(
    ("group", "quota", "wanted"),
    [
        ("cpu/a", "250000", 3),
        ("cpu", "250000", 3),
        ("cpu,cpuacct/a", "100000", 1),
        ("cpu", "-1", 8),
    ],
)
def test_quota_of_version_1_counts(tmp_path: Path, group: str, quota: str, wanted: int) -> None:
    """A container may be told the host's path of its group; -1 means no quota."""
    quotas = {f"{group}/cpu.cfs_quota_us": quota, f"{group}/cpu.cfs_period_us": "100000"}
    root = machine(tmp_path, "4:cpu,cpuacct:/a\n", quotas)
    assert usable_cores(root, {}) == wanted


def test_task_of_slurm_has_its_own_cores(tmp_path: Path) -> None:
    """Not every cluster pins its tasks."""
    assert usable_cores(tmp_path, {"SLURM_CPUS_PER_TASK": "3"}) == 3
    assert usable_cores(tmp_path, {"SLURM_CPUS_PER_TASK": "64"}) == 8
    assert usable_cores(tmp_path, {"SLURM_CPUS_PER_TASK": ""}) == 8


@pytest.mark.skipif(shutil.which("taskset") is None, reason="no taskset")
def test_pinned_process_has_the_cores_that_it_is_pinned_to() -> None:
    """A learner that is pinned to one core starts one thread, in torch and in all libraries."""
    code = "from seed.cores import *; limit_native_threads(); print(usable_cores(), end=' ');"
    code += "import torch; print(torch.get_num_threads())"
    environment = {name: x for name, x in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(
        ["taskset", "-c", str(FIRST_CORE), sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "1 1\n"


def test_libraries_start_a_thread_for_each_usable_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number that the user has set stays."""
    monkeypatch.setattr(cores, "usable_cores", lambda: 3)
    monkeypatch.delenv("OMP_NUM_THREADS")
    limit_native_threads()
    assert os.environ["OMP_NUM_THREADS"] == "3"
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    limit_native_threads()
    assert os.environ["OMP_NUM_THREADS"] == "7"
