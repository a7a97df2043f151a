"""Of which code, on which machine: what stands beside a run's config and every measurement.

Used by every role at start-up, and by whatever writes a file of docs/results/.
"""

import datetime
import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

# What can change a run's results, where it is installed. Looked up by name, so
# that an actor need not have torch, nor import it.
_PACKAGES = (
    "seed-rl",
    "torch",
    "numpy",
    "grpcio",
    "protobuf",
    "gymnasium",
    "ale-py",
    "opencv-python-headless",
)


def provenance(name: str) -> dict[str, Any]:
    """Returns what this process is: the command it was started by, and of which code."""
    return {
        "name": name,
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "git_commit": git_commit(),
        "versions": {"python": platform.python_version()} | _package_versions(),
    }


def evidence_header(command: str) -> dict[str, Any]:
    """Returns the fields with which every file of docs/results/ begins.

    Args:
      command: by which a reader makes the file again.
    """
    return {
        "command": command,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "hardware": describe_hardware(),
        "git_commit": git_commit(),
    }


def describe_hardware() -> str:
    """Returns processor model, usable cores and memory of this machine."""
    gibibytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{_processor_model()}, {num_cores()} cores, {gibibytes:.0f} GiB memory"


def num_cores() -> int:
    """Returns the cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def git_commit() -> str | None:
    """Returns the source tree's commit, "-dirty" appended if it was changed; None outside git.

    An image has no repository, but is told the commit when it is made.
    """
    if told := os.environ.get("SEED_GIT_COMMIT"):
        return told
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def _package_versions() -> dict[str, str]:
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _processor_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())
