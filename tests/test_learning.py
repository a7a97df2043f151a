"""Agents that have to become good, through real gRPC and real processes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


def _train_and_evaluate(preset: str, run_dir: Path, episodes: int, *flags: str) -> float:
    """Returns the mean return of greedy games after the preset's whole budget."""
    command = [sys.executable, "-m", "seed.cli"]
    train = [*command, "train", preset, "--run-dir", str(run_dir), "--json", *flags]
    subprocess.run(train, check=True, stdout=subprocess.DEVNULL)
    evaluate = [*command, "eval", str(run_dir), "--episodes", str(episodes), "--json"]
    done = subprocess.run(evaluate, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)["eval_return_mean"]


def _best_mean_return(run_dir: Path) -> float:
    """Returns the best mean over 100 training games, exploration included."""
    reports = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return max(report.get("episode/return_mean_100", 0.0) for report in reports)


@pytest.mark.learning
def test_catch_is_solved_from_pixels(tmp_path: Path) -> None:
    """Catch, whose best return is 1 and whose random one is -0.6."""
    assert _train_and_evaluate("catch-vtrace", tmp_path / "run", 100) >= 0.95


@pytest.mark.learning
@pytest.mark.timeout(240)
def test_cartpole_is_balanced_with_vtrace(tmp_path: Path) -> None:
    """CartPole-v1, whose best return is 500."""
    assert _train_and_evaluate("cartpole-vtrace", tmp_path / "run", 20) >= 450


@pytest.mark.learning
@pytest.mark.timeout(300)
def test_cartpole_is_balanced_with_r2d2(tmp_path: Path) -> None:
    """CartPole-v1, whose best return is 500: in the end, or over 100 games on the way.

    Which weights a run of Q-learning ends with is luck: once all games in the replay are
    long ones, it forgets for a while how they are lost.
    """
    final = _train_and_evaluate("cartpole-r2d2", tmp_path / "run", 20)
    assert max(final, _best_mean_return(tmp_path / "run")) >= 450


@pytest.mark.learning
def test_recall_is_solved_with_memory(tmp_path: Path) -> None:
    """Recall, whose best return is 1 and whose return without memory is 0."""
    assert _train_and_evaluate("memory-r2d2", tmp_path / "run", 100) >= 0.9


@pytest.mark.learning
def test_recall_is_not_solved_without_memory(tmp_path: Path) -> None:
    """The control: were it solved, the test with memory would prove nothing."""
    flags = ("--lstm-size", "0", "--burn-in", "0")
    assert _train_and_evaluate("memory-r2d2", tmp_path / "run", 100, *flags) <= 0.3
