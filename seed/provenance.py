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

from seed.cores import usable_cores

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


# The folder of the checkout; that of all installed packages where this is no checkout.
_PROJECT = Path(__file__).resolve().parents[1]


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
    return f"{_processor_model()}, {usable_cores()} cores, {gibibytes:.0f} GiB memory"


def git_commit() -> str | None:
    """Returns this project's commit, "-dirty" appended if its files were changed.

    None if the code is no checkout of this project: it may be installed somewhere inside another
    repository, whose commit would say nothing. A container image has no repository: its build
    sets SEED_GIT_COMMIT to the commit.
    """
    if told := os.environ.get("SEED_GIT_COMMIT"):
        return told
    if not (_PROJECT / "pyproject.toml").exists() or _git("rev-parse", "--show-prefix") != "":
        return None
    return _git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*") or None


def _git(*arguments: str) -> str | None:
    """Returns what git prints about the folder of this project; None if it fails."""
    # Hooks of git set variables that would name another repository.
    environment = {name: x for name, x in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=_PROJECT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


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
