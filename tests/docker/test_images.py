"""What the images are made from, checked without making them."""

import re
import subprocess
import sys
import tomllib

import pytest
import setuptools

from tests.support.tools import DOCKER, ROOT, run_tool

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_dockerfile_passes_its_linter() -> None:
    """hadolint finds nothing."""
    run_tool("hadolint", DOCKER / "Dockerfile")


@pytest.mark.parametrize(("role", "has_torch"), [("actor", False), ("learner", True)])
def test_requirements_follow_pyproject(role: str, has_torch: bool) -> None:
    """Each image gets the common dependencies and its own, and only the learner's gets torch."""
    command = [sys.executable, DOCKER / "requirements.py", role]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    requirements = lines.stdout.split()
    project = PROJECT["project"]
    assert requirements == [*project["dependencies"], *project["optional-dependencies"][role]]
    assert any(line.startswith("torch") for line in requirements) == has_torch


def packages_of_the_wheel() -> set[str]:
    """Returns the packages that setuptools finds, by their dotted names."""
    include = PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    return set(setuptools.find_packages(str(ROOT), include=include))


def test_wheel_holds_every_package() -> None:
    """An editable install finds a folder without __init__.py, and a wheel lacks it."""
    folders = {
        ".".join(file.parent.relative_to(ROOT).parts)
        for name in ("actors", "learner", "seed", "seed_bench")
        for file in (ROOT / name).rglob("*.py")
    }
    assert packages_of_the_wheel() == folders


def test_build_context_holds_the_packages_and_nothing_else() -> None:
    """The ignore file admits what the wheel is made of, and no runs, keys or repository."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    allowed = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    packages = {name.split(".")[0] for name in packages_of_the_wheel()}
    files = {"pyproject.toml", "constraints.txt", "README.md", "LICENSE", "docker/requirements.py"}
    assert allowed == packages | files


def test_images_run_as_a_user_given_by_number() -> None:
    """The last USER of both images is a number and not root, since runAsNonRoot refuses names."""
    stages = re.split(r"^FROM ", (DOCKER / "Dockerfile").read_text(), flags=re.MULTILINE)
    final = [stage for stage in stages if re.match(r"runtime AS (actor|learner)\n", stage)]
    assert len(final) == 2
    for stage in final:
        assert re.findall(r"^USER (\S+)$", stage, flags=re.MULTILINE) == ["10001:10001"]
