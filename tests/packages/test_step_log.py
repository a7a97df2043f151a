"""An observer of steps of another package, by its name."""

import json
import subprocess
from pathlib import Path

from tests.support.processes import TIMEOUT_S, command


def test_every_step_is_observed(tmp_path: Path) -> None:
    """It sees as many steps as the run counts, with action and value, and is then closed."""
    run_dir = tmp_path / "run"
    done = subprocess.run(
        command(
            *("train", "cartpole-vtrace", "--run-dir", run_dir, "--total-env-steps", 2_000),
            *("--observers", "tests.packages.step_log:StepLog", "--json"),
        ),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    *lines, last = map(json.loads, (run_dir / "steps.jsonl").read_text().splitlines())
    assert last == "closed"
    # No action led to the rows that start an episode, so there are some more rows.
    num_rows = sum(len(line["slots"]) for line in lines)
    assert num_rows > json.loads(done.stdout)["env_steps"]
    for line in lines:
        assert len(line["slots"]) == len(line["actions"]) == len(line["values"])
        assert set(line["actions"]) <= {0, 1}


def test_class_that_is_not_an_observer_is_refused(tmp_path: Path) -> None:
    """The error names the class, and comes before anything is served."""
    done = subprocess.run(
        command(
            *("train", "cartpole-vtrace", "--run-dir", tmp_path / "run"),
            *("--observers", "tests.packages.ppo:PPO"),
        ),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 2
    assert "observers: expected a class with the methods observe and close" in done.stderr
    assert "Traceback" not in done.stderr
