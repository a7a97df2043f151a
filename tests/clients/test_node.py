"""An actor in another language, which knows only this project's .proto."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NODE_CLIENT = Path(__file__).parent / "node"
TIMEOUT_S = 90.0


@pytest.fixture(scope="module")
def actor_script() -> Path:
    """Returns the client with its packages installed; they stay there for the next run."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    if not (NODE_CLIENT / "node_modules" / "@grpc" / "proto-loader").exists():
        command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
        done = subprocess.run(command, cwd=NODE_CLIENT, capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"npm could not install the client's packages: {done.stderr.strip()}")
    return NODE_CLIENT / "actor.js"


def test_node_actor_brings_its_own_environment_and_learns_it(
    actor_script: Path, tmp_path: Path
) -> None:
    """The learner knows only its spec; a random policy loses half of its games."""
    run_dir, address = tmp_path / "run", f"unix:{tmp_path / 'learner.sock'}"
    learner = subprocess.Popen(
        [
            *(sys.executable, "-m", "seed.cli", "learner", "cartpole-vtrace"),
            *("--env-id", "Corridor", "--listen", address, "--run-dir", run_dir),
            *("--total-env-steps", "40000", "--envs-per-group", "16", "--report-every-s", "0.5"),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        actor = subprocess.run(
            ["node", actor_script, address], capture_output=True, text=True, timeout=TIMEOUT_S
        )
        _, errors = learner.communicate(timeout=TIMEOUT_S)
    finally:
        learner.kill()
        learner.wait()
    assert learner.returncode == 0, errors
    assert actor.returncode == 0, actor.stdout + actor.stderr
    assert "task: Corridor, 2 groups of 16\nwelcomed to run\n" in actor.stdout
    reports = [json.loads(line) for line in (run_dir / "metrics.jsonl").open()]
    assert reports[-1]["episode/return_mean_100"] > 0.9
    assert reports[-1]["env_steps"] >= 40_000
    assert reports[-1]["episode/length_mean"] >= 3  # The policy walks straight to the right end.
