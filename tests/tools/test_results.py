"""The evidence of a run: what is read from its reports, and what is written."""

import json
from pathlib import Path

import pytest

from learner.config.config_file import dump_config
from learner.config.presets import PRESETS
from tools.results import find_crossings, main, read_reports


def write_run(directory: Path, reports: list[dict[str, float | None]]) -> Path:
    """Writes a run's files and returns its directory."""
    dump_config(PRESETS["atari-vtrace-cpu"].config, directory / "config.yaml", name="x")
    lines = [json.dumps(report) for report in reports]
    (directory / "metrics.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return directory


def make_report(step: int, mean: float | None, episodes: int = 100) -> dict[str, float | None]:
    """Returns a report at a thousand env steps a second."""
    return {
        "env_steps": step,
        "wall_s": step / 1000,
        "env_steps_per_s": 1000.0,
        "episodes": episodes,
        "episode/return_mean_100": mean,
    }


def test_steps_done_again_after_a_resume_count_once(tmp_path: Path) -> None:
    """The later reports replace those before the resume."""
    reports = [make_report(step, 0.0) for step in (10, 20, 30, 20, 25)]
    run = write_run(tmp_path, reports)
    steps = [report["env_steps"] for report in read_reports(run / "metrics.jsonl")]
    assert steps == [10, 20, 25]


def test_crossing_needs_a_hundred_games_and_is_the_first() -> None:
    """A lucky first game is no crossing, and a threshold that is not reached is left out."""
    reports = [
        make_report(1000, 21.0, episodes=1),
        make_report(2000, None),
        make_report(3000, 5.0),
        make_report(4000, 18.5),
        make_report(5000, 19.0),
    ]
    crossings = find_crossings(reports, [18.0, 0.0, 20.0])
    assert crossings == [(0.0, 3000, 3.0), (18.0, 4000, 4.0)]


def test_evidence_has_the_names_of_the_design_and_a_plot(tmp_path: Path) -> None:
    """JSON and picture are in the same directory."""
    run = write_run(tmp_path, [make_report(1000, -20.0), make_report(2000, 18.0)])
    arguments = [str(run), "--name", "pong", "--out", str(tmp_path / "out"), "--thresholds", "18"]
    assert main(arguments) == 0
    summary = json.loads((tmp_path / "out" / "pong.json").read_text(encoding="utf-8"))
    assert summary["env_id"] == "ALE/Pong-v5"
    assert summary["preset"] == "x"
    assert summary["rng_seeds"] == [1]
    assert (summary["env_steps"], summary["wall_s"], summary["env_steps_per_s"]) == (2000, 2, 1000)
    assert summary["return_mean_100"] == 18.0
    assert {"command", "date", "hardware", "git_commit", "crossings"} <= summary.keys()
    assert (tmp_path / "out" / "pong.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_without_reports_is_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """The error names the missing file, without a traceback."""
    assert main([str(tmp_path), "--name", "x"]) == 2
    assert "metrics.jsonl: expected a readable file" in capsys.readouterr().err


def test_evidence_takes_in_an_evaluation(tmp_path: Path) -> None:
    """It reads the output of `seed eval --json`, and refuses a torn one by name."""
    run = write_run(tmp_path, [make_report(1000, 15.0)])
    evaluation = tmp_path / "eval.json"
    arguments = [str(run), "--name", "x", "--out", str(tmp_path), "--evaluation", str(evaluation)]
    evaluation.write_text('{"eval_return_mean": 17.5, "eval_episodes": 2, "returns": [17, 18]}')
    assert main(arguments) == 0
    summary = json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))
    assert (summary["eval_return_mean"], summary["eval_episodes"]) == (17.5, 2)
    assert "returns" not in summary
    evaluation.write_text('{"eval_return_mean": 17')
    assert main(arguments) == 2
