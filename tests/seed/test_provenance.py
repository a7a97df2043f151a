"""The fields at the head of every file of measurements."""

import datetime
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from seed.cores import usable_cores
from seed.provenance import describe_hardware, evidence_header, git_commit, provenance

ROOT = Path(__file__).parents[2]


def test_evidence_names_command_day_machine_and_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file of docs/results has these fields."""
    monkeypatch.setenv("SEED_GIT_COMMIT", "0123abc")
    header = evidence_header("seed bench --json")
    assert header["command"] == "seed bench --json"
    datetime.date.fromisoformat(header["date"])
    assert header["hardware"] == describe_hardware()
    assert header["git_commit"] == "0123abc"


def test_hardware_names_the_cores_that_may_be_used() -> None:
    """A container may use fewer cores than the machine has."""
    assert f", {usable_cores()} cores, " in describe_hardware()


def test_tree_outside_git_has_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without git, or a folder outside it, gives None."""
    monkeypatch.delenv("SEED_GIT_COMMIT", raising=False)
    monkeypatch.setenv("PATH", "")
    assert git_commit() is None
    assert provenance("catch-vtrace")["git_commit"] is None


def git(directory: Path, *arguments: str) -> str:
    """Runs git as somebody, and returns what it prints."""
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    command = ["git", "-C", str(directory), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def make_repository(directory: Path) -> str:
    """Commits all files of a directory to a repository of its own; returns the commit."""
    git(directory, "init", "-q")
    git(directory, "add", "--all")
    git(directory, "commit", "-q", "--allow-empty", "-m", "x")
    return git(directory, "rev-parse", "HEAD")


def copy_project(directory: Path) -> Path:
    """Copies as much of the project as tells its commit, and returns the folder."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "seed", directory / "seed", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", directory)
    return directory


def commit_told_by(project: Path, **environment: str) -> str:
    """Returns what a fresh interpreter prints that runs the project's copy of this code."""
    code = "from seed.provenance import git_commit; print(git_commit())"
    command = [sys.executable, "-B", "-c", code]
    variables = {name: x for name, x in os.environ.items() if name != "SEED_GIT_COMMIT"}
    variables |= {"PYTHONPATH": str(project)} | environment
    done = subprocess.run(
        command, cwd=project, env=variables, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_checkout_has_its_own_commit(tmp_path: Path) -> None:
    """This holds for a submodule of another repository, too, and a change is marked."""
    make_repository(tmp_path)
    project = copy_project(tmp_path / "seed-checkout")
    commit = make_repository(project)
    assert commit_told_by(project) == commit
    (project / "seed/cli.py").write_text("", encoding="utf-8")
    assert commit_told_by(project) == f"{commit}-dirty"


def test_variables_of_a_git_hook_do_not_mislead(tmp_path: Path) -> None:
    """A run that a hook starts inherits GIT_DIR, of the hook's repository."""
    other, project = tmp_path / "other", copy_project(tmp_path / "project")
    other.mkdir()
    make_repository(other)
    commit = make_repository(project)
    assert commit_told_by(project, GIT_DIR=str(other / ".git")) == commit


def test_install_inside_another_repository_has_no_commit(tmp_path: Path) -> None:
    """The commit of the user's project, or of a folder of packages, is not this project's."""
    packages = tmp_path / ".venv/lib/site-packages"
    packages.mkdir(parents=True)
    copy_project(packages)
    make_repository(tmp_path)
    assert commit_told_by(packages) == "None"  # a copy within another project
    (packages / "pyproject.toml").unlink()
    assert commit_told_by(packages) == "None"
    make_repository(packages)
    assert commit_told_by(packages) == "None"
