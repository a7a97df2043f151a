"""Which code ran, by which command, on which machine.

The learner writes it into a run's config.yaml; seed_bench and tools/ write it at the head of
every file of docs/results/.
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

import psutil

# Packages that can change a run's results. Their versions are looked up by name, so that none
# of them is imported, and one that is not installed is left out.
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
    """Returns the command that started this process, and the versions of its code.

    Args:
      name: of the preset.
    """
    return {
        "name": name,
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "git_commit": git_commit(),
        "versions": {"python": platform.python_version()} | _package_versions(),
    }


def evidence_header(command: str) -> dict[str, Any]:
    """Returns the fields with which every file of docs/results/ begins.

    Args:
      command: the command that makes the file.
    """
    return {
        "command": command,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "hardware": describe_hardware(),
        "git_commit": git_commit(),
    }


def describe_hardware() -> str:
    """Returns processor model, usable cores and memory of this machine."""
    gibibytes = psutil.virtual_memory().total / 2**30
    return f"{_processor_model()}, {num_cores()} cores, {gibibytes:.0f} GiB memory"


def num_cores() -> int:
    """Returns the number of cores that this process may use.

    A container may be restricted to some of the machine's cores.
    """
    if not hasattr(psutil.Process, "cpu_affinity"):  # macOS pins no process
        return psutil.cpu_count() or 1
    return len(psutil.Process().cpu_affinity())


def git_commit() -> str | None:
    """Returns the source tree's commit, "-dirty" appended if it was changed; None outside git.

    A container image has no repository: its build sets SEED_GIT_COMMIT to the commit.
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
