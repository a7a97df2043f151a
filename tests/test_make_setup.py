"""`make setup`: which torch it takes, on machines that a false pip pretends. Installs nothing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
CPU_INDEX = "https://download.pytorch.org/whl/cpu"

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("make") is None, reason="needs Linux and make"
)

# Stands for Python: makes the virtual environment, and in it notes what pip is asked for. An index
# that the test calls unreachable makes pip fail.
PYTHON = """#!/bin/sh
if [ "$2" = venv ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; exit; fi
echo "$*" >> pip.log
case "$*" in *--index-url*) exit ${UNREACHABLE:-0};; esac
"""


class Setup(NamedTuple):
    """What a run of `make setup` did."""

    code: int
    installs: list[str]
    stderr: str


def set_up(directory: Path, *variables: str, unreachable: bool = False) -> Setup:
    """Runs `make setup` in a directory, with variables of make."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, directory)
    python = directory / "python"
    python.write_text(PYTHON, encoding="utf-8")
    python.chmod(0o755)
    command = ["make", "--no-print-directory", "setup", f"PYTHON={python}", *variables]
    environment = {name: x for name, x in os.environ.items() if name not in ("TORCH_INDEX", "GPU")}
    environment["UNREACHABLE"] = "1" if unreachable else "0"
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=60
    )
    installs = (directory / "pip.log").read_text(encoding="utf-8").splitlines()
    return Setup(done.returncode, installs, done.stderr)


def test_machine_without_a_gpu_takes_the_cpu_build_first(tmp_path: Path) -> None:
    """The package index's torch for Linux brings gigabytes of CUDA."""
    setup = set_up(tmp_path, "GPU=")
    assert setup.code == 0
    torch, rest = setup.installs
    assert f"--no-deps --retries 1 --timeout 10 --index-url {CPU_INDEX} torch" in torch
    assert "-c constraints.txt" in torch and "-c constraints.txt -e .[dev]" in rest
    assert (tmp_path / ".venv/.installed").exists()


def test_index_that_cannot_be_reached_is_done_without(tmp_path: Path) -> None:
    """A machine may reach only its own package index."""
    setup = set_up(tmp_path, "GPU=", unreachable=True)
    assert setup.code == 0
    assert len(setup.installs) == 2
    wanted = f"make setup: {CPU_INDEX} does not work; taking torch from the package index"
    assert wanted in setup.stderr


@pytest.mark.parametrize("variable", ["GPU=/dev/nvidia0", "TORCH_INDEX="])
def test_machine_with_a_gpu_takes_the_package_index(tmp_path: Path, variable: str) -> None:
    """An empty TORCH_INDEX asks for the same."""
    setup = set_up(tmp_path, variable)
    assert [line for line in setup.installs if "--index-url" in line] == []
    assert len(setup.installs) == 1


def test_index_that_the_user_names_must_work(tmp_path: Path) -> None:
    """Another build of torch would be a surprise."""
    index = "TORCH_INDEX=https://pytorch.example/whl/cu130"
    setup = set_up(tmp_path, "GPU=/dev/nvidia0", index, unreachable=True)
    assert setup.code != 0
    assert len(setup.installs) == 1
    assert not (tmp_path / ".venv/.installed").exists()
