"""The checkers of what docker/ holds, and the parsers of its command lines.

Used by tests/docker. `make check` installs the programs; a test that needs one that is
not there skips, and says so.
"""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import tyro

from actors.args import ActorArgs
from learner.config.args import LearnerArgs, parse_preset
from seed.health import HealthArgs
from seed.health import parse as parse_health

ROOT = Path(__file__).parent.parent.parent
DOCKER = ROOT / "docker"


def require_tool(name: str) -> str:
    """Returns the path of a program in this environment or on PATH; skips the test without it."""
    beside_python = Path(sys.executable).with_name(name)
    found = str(beside_python) if beside_python.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed (make check installs what PyPI has)")
    return found


def run_tool(name: str, *args: object) -> str:
    """Returns what a program prints; a failure fails the test with its output."""
    command = [require_tool(name), *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=100)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def parse_command_line(argv: Sequence[str]) -> LearnerArgs | ActorArgs | HealthArgs:
    """Returns what the program's own parser makes of `seed <argv>`; a refusal fails the test."""
    command, *flags = argv
    try:
        match command:
            case "learner":
                return parse_preset(LearnerArgs, command, flags)[1]
            case "actor":
                return tyro.cli(ActorArgs, args=flags)
            case "health":
                return parse_health(flags)
    except SystemExit as refusal:
        raise AssertionError(f"`seed {' '.join(argv)}` is refused") from refusal
    raise AssertionError(f"no command for a container: {command}")
