"""Two learners under torchrun: one run, one set of files, and a restart together."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from learner.checkpoint import load_checkpoint
from learner.config.config_file import load_config

TIMEOUT_S = 150.0

# One of the two trains with the other, and sees its end by itself.
READY = r"learner 0: .*[1-9]\d* updates.* 2 actors, 64 envs"


def flags(run_dir: Path) -> list[str]:
    """Returns what follows `seed train` in a job."""
    return [
        *("cartpole-vtrace", "--run-dir", str(run_dir), "--resume"),
        *("--report-every-s", "0.5", "--checkpoint-every-s", "1"),
        *("--total-env-steps", "1000000000"),
    ]


@pytest.fixture
def torchrun(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Two learners that train CartPole, each with an actor of its own."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", "2", "--max-restarts", "1", "-m", "seed.cli"),
            *("train", *flags(tmp_path / "run")),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    yield process
    process.terminate()  # torchrun ends its learners, and they end their actors.
    process.wait(TIMEOUT_S)


def read_until(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    """Blocks until a line of the output matches."""
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if match := re.search(pattern, line):
            return match
    raise AssertionError(f"no line matches {pattern!r} in:\n{seen}")


def assert_first_learner_of_another_job_is_refused(run_dir: Path) -> None:
    """The first learner of a job locks the run directory for all."""
    place = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
    master = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    done = subprocess.run(
        [*(sys.executable, "-m", "seed.cli", "train"), *flags(run_dir)],
        env=os.environ | place | master,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 1
    assert "run_dir: expected a directory that no other learner uses" in done.stderr


@pytest.mark.timeout(300)
def test_learner_that_dies_is_restarted_with_the_others(
    tmp_path: Path, torchrun: subprocess.Popen[str]
) -> None:
    """The run goes on from the last checkpoint with all counters, and has one set of files."""
    run_dir = tmp_path / "run"
    doomed = read_until(torchrun, r"learner 1: trainer is process (\d+)")[1]
    read_until(torchrun, r"learner 0: saved")
    read_until(torchrun, READY)
    subprocess.run(["kill", "-9", doomed], check=True)
    resumed = int(read_until(torchrun, r"learner 0: resuming .* at ([\d,]+)")[1].replace(",", ""))
    read_until(torchrun, READY)
    assert_first_learner_of_another_job_is_refused(run_dir)
    torchrun.terminate()
    read_until(torchrun, r"learner 0: saved")
    torchrun.wait(TIMEOUT_S)

    reports = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    steps = [report["env_steps"] for report in reports]
    # The count falls once, to that of the checkpoint.
    assert [after for before, after in pairwise(steps) if after < before] == [resumed]
    checkpoint = load_checkpoint(run_dir / "checkpoints")
    assert checkpoint.state["env_steps"] > resumed
    assert load_config(run_dir / "config.yaml").agent.batch_size == 16
    assert max(report.get("envs/connected", 0) for report in reports) == 64
