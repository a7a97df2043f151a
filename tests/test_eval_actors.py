"""Evaluation actors beside training: their games are reported and never trained on."""

import json
import signal
import subprocess
import sys
from pathlib import Path

# Every game of Catch has this many steps.
GAME_LENGTH = 9
# Environments of one training actor, as in the preset, and of an evaluation actor.
NUM_ENVS, NUM_EVAL_ENVS = 2 * 16, 4


def _reports(run_dir: Path) -> list[dict[str, float]]:
    """Returns the reports so far."""
    path = run_dir / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _has_seen_enough(reports: list[dict[str, float]]) -> bool:
    """Tells whether several reports hold evaluation games, and training has begun."""
    num_evaluated = sum("eval/return_mean" in report for report in reports)
    return num_evaluated >= 4 and reports[-1]["learner_steps"] > 0


def _train_until_seen_enough(run_dir: Path) -> None:
    """Trains on Catch with an evaluation actor, and ends the run with SIGTERM."""
    command = [sys.executable, "-m", "seed.cli", "train", "catch-vtrace", "--num-eval-actors", "1"]
    flags = [
        "--run-dir",
        str(run_dir),
        "--report-every-s",
        "0.5",
        "--total-env-steps",
        "1000000000",
    ]
    process = subprocess.Popen([*command, *flags], stderr=subprocess.PIPE, text=True)
    output = ""
    try:
        assert process.stderr is not None
        # A line is logged after every report, so that this loop need not sleep.
        for line in process.stderr:
            output += line
            if _has_seen_enough(_reports(run_dir)):
                break
        process.send_signal(signal.SIGTERM)
        output += process.communicate()[1]
    finally:
        process.kill()
    assert process.returncode == 0, output


def test_evaluation_games_are_reported_and_their_steps_not_counted(tmp_path: Path) -> None:
    """The counted env steps are those of training games; evaluation games would add many more."""
    run_dir = tmp_path / "run"
    _train_until_seen_enough(run_dir)
    reports = _reports(run_dir)
    *_, evaluated = (report for report in reports if "eval/return_mean" in report)
    assert -1 <= evaluated["eval/return_mean"] <= 1
    assert evaluated["eval/length_mean"] == GAME_LENGTH
    assert max(report.get("envs/connected", 0) for report in reports) == NUM_ENVS + NUM_EVAL_ENVS
    unfinished = reports[-1]["env_steps"] - GAME_LENGTH * reports[-1]["episodes"]
    assert 0 <= unfinished < GAME_LENGTH * NUM_ENVS
    assert "connected to run" in (run_dir / "eval-actor-0.log").read_text()
