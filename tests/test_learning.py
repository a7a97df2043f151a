"""Agents that must learn well, through real gRPC and real processes.

Where good training games prove enough, a run ends with them. The others spend their preset's
budget: weights that have just become good can still be bad for a moment.
"""

import json
import math
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.processes import TIMEOUT_S, Process, command


def _train(preset: str, run_dir: Path, *flags: str, until: float = math.inf) -> None:
    """Trains until `_best_mean_return` is `until`, or for the preset's whole budget."""
    process = Process("train", preset, "--run-dir", run_dir, "--report-every-s", 1, *flags)
    # Each report is followed by a line of the log.
    is_good = any(_best_mean_return(run_dir) >= until for _ in process.lines())
    code = process.end(signal.SIGTERM) if is_good else process.wait()
    assert code == 0, process.output


def _best_mean_return(run_dir: Path) -> float:
    """Returns the best mean over 100 training games so far, exploration included."""
    path = run_dir / "metrics.jsonl"
    reports = map(json.loads, path.read_text().splitlines() if path.exists() else [])
    means = (report.get("episode/return_mean_100", -math.inf) for report in reports)
    return max(means, default=-math.inf)


def _evaluate(run_dir: Path, episodes: int) -> float:
    """Returns the mean return of greedy games."""
    evaluate = command("eval", run_dir, "--episodes", episodes, "--json")
    done = subprocess.run(evaluate, check=True, stdout=subprocess.PIPE, timeout=TIMEOUT_S)
    return json.loads(done.stdout)["eval_return_mean"]


@pytest.mark.learning
def test_catch_is_solved_from_pixels(tmp_path: Path) -> None:
    """Catch, whose best return is 1 and whose random one is -0.6."""
    _train("catch-vtrace", tmp_path / "run")
    assert _evaluate(tmp_path / "run", 100) >= 0.95


@pytest.mark.learning
@pytest.mark.timeout(240)
def test_cartpole_is_balanced_with_vtrace(tmp_path: Path) -> None:
    """CartPole-v1, whose best return is 500."""
    _train("cartpole-vtrace", tmp_path / "run")
    assert _evaluate(tmp_path / "run", 20) >= 450


@pytest.mark.learning
@pytest.mark.timeout(300)
def test_cartpole_is_balanced_with_r2d2(tmp_path: Path) -> None:
    """CartPole-v1, whose best return is 500: over 100 games on the way, or in the end.

    Which weights a run of Q-learning ends with is luck: once all games in the replay are
    long ones, it forgets for a while how they are lost.
    """
    _train("cartpole-r2d2", tmp_path / "run", until=450)
    is_good = _best_mean_return(tmp_path / "run") >= 450
    assert is_good or _evaluate(tmp_path / "run", 20) >= 450


@pytest.mark.learning
def test_recall_is_solved_with_memory(tmp_path: Path) -> None:
    """Recall, whose best return is 1 and whose return without memory is 0."""
    _train("memory-r2d2", tmp_path / "run", until=0.98)
    assert _evaluate(tmp_path / "run", 100) >= 0.9


@pytest.mark.learning
def test_recall_is_not_solved_without_memory(tmp_path: Path) -> None:
    """If it were solved, the test with memory would prove nothing."""
    _train("memory-r2d2", tmp_path / "run", "--lstm-size", "0", "--burn-in", "0")
    assert _evaluate(tmp_path / "run", 100) <= 0.3
