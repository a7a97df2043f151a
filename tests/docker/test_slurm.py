"""The SLURM scripts as text. test_slurm_jobs.py runs them."""

import subprocess
from pathlib import Path

import pytest

from tests.support.tools import DOCKER, run_tool


@pytest.mark.parametrize(
    "script", sorted((DOCKER / "slurm").glob("*.sbatch")), ids=lambda s: s.stem
)
def test_script_is_sound(script: Path) -> None:
    """bash parses each script, and shellcheck finds nothing."""
    subprocess.run(["bash", "-n", script], check=True)
    run_tool("shellcheck", script)
