"""Runs parts of a measurement in processes of their own, and reads what they write.

Called by the benches and studies. The parts are the modules of seed_bench/parts/ and the `seed`
command.
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from learner.config.run_dir import RunDir
from seed.errors import SeedError
from seed.search_path import python_module


def run_module(command: Sequence[str]) -> dict[str, Any]:
    """Returns the JSON object that `python -m <command>` prints.

    Raises:
      SeedError: the process failed; the message holds what it wrote to stderr.
    """
    done = subprocess.run(
        python_module(*command),
        capture_output=True,
        text=True,
        # Libraries would use more than the one thread that each part may use.
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    if done.returncode:
        raise SeedError(f"python -m {' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def flags_of(values: Mapping[str, object]) -> list[str]:
    """Returns a command line's flags: {"num-envs": 2} gives ["--num-envs", "2"]."""
    return [text for name, value in values.items() for text in (f"--{name}", str(value))]


def reports_so_far(run_dir: Path) -> list[dict[str, Any]]:
    """Returns the reports of a run that still runs, without a last line that is half written."""
    path = RunDir(run_dir).metrics
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]
