"""The evidence of a memory task: what counts as success, and runs that cannot be compared."""

import dataclasses
import json
from pathlib import Path

import pytest

from learner.config.config_file import dump_config
from learner.config.presets import PRESETS
from seed.env_config import EnvConfig
from tools.memory_results import main

CONFIG = PRESETS["memory-hard-r2d2"].config
REPORT = {
    "env_steps": 1000,
    "wall_s": 2.0,
    "env_steps_per_s": 500.0,
    "episodes": 100,
    "episode/return_mean_100": 0.5,
}


def write_run(
    directory: Path,
    rng_seed: int,
    lstm_size: int,
    returns: list[float],
    env: EnvConfig = CONFIG.env,
) -> str:
    """Writes a run's files and the result of its evaluation, and returns its directory."""
    directory.mkdir()
    network = dataclasses.replace(CONFIG.network, lstm_size=lstm_size)
    config = dataclasses.replace(CONFIG, network=network, rng_seed=rng_seed, env=env)
    dump_config(config, directory / "config.yaml", name="memory-hard-r2d2")
    (directory / "metrics.jsonl").write_text(json.dumps(REPORT), encoding="utf-8")
    (directory / "eval.json").write_text(json.dumps({"returns": returns}), encoding="utf-8")
    return str(directory)


def test_success_is_counted_with_and_without_memory(tmp_path: Path) -> None:
    """Means are over the seeds, for any order of the runs."""
    runs = [
        write_run(tmp_path / "a", 2, 64, [1.0, 1.0, 1.0, -1.0]),
        write_run(tmp_path / "b", 1, 64, [1.0, 1.0, 1.0, 1.0]),
        write_run(tmp_path / "c", 1, 0, [1.0, -1.0, -1.0, -1.0]),
    ]
    assert main([*runs, "--name", "memory", "--out", str(tmp_path)]) == 0
    summary = json.loads((tmp_path / "memory.json").read_text(encoding="utf-8"))
    assert summary["rng_seeds"] == [1, 2]
    assert [seed["success_rate"] for seed in summary["per_seed"]] == [1.0, 0.75]
    assert (summary["success_rate"], summary["eval_return_mean"]) == (0.875, 0.75)
    assert (summary["eval_episodes"], summary["env_steps"], summary["wall_s"]) == (8, 1000, 2)
    assert summary["without_memory"]["success_rate"] == 0.25
    assert summary["env_id"] == "seed/Recall-v0"
    assert summary["env_kwargs"] == {"length": 40}
    assert {"command", "date", "hardware", "git_commit", "preset"} <= summary.keys()
    assert (tmp_path / "memory.png").read_bytes().startswith(b"\x89PNG")


def test_runs_without_a_control_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """A success without a control proves nothing."""
    runs = [write_run(tmp_path / "a", 1, 64, [1.0])]
    assert main([*runs, "--name", "memory", "--out", str(tmp_path)]) == 2
    assert "expected some with and some without memory, got 1 and 0" in capsys.readouterr().err


def test_runs_of_different_tasks_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """A control on an easier task proves nothing."""
    easier = dataclasses.replace(CONFIG.env, env_kwargs='{"length": 10}')
    runs = [
        write_run(tmp_path / "a", 1, 64, [1.0]),
        write_run(tmp_path / "b", 1, 0, [-1.0], easier),
    ]
    assert main([*runs, "--name", "memory", "--out", str(tmp_path)]) == 2
    assert "runs: expected all of" in capsys.readouterr().err


def test_a_run_without_an_evaluation_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """The user sees which file is missing."""
    run = write_run(tmp_path / "a", 1, 64, [1.0])
    (tmp_path / "a" / "eval.json").unlink()
    assert main([run, "--name", "memory", "--out", str(tmp_path)]) == 2
    assert "a/eval.json: expected what seed eval --json prints" in capsys.readouterr().err


def test_no_runs_at_all_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """The shell found no directory."""
    with pytest.raises(SystemExit):
        main(["--name", "memory"])
    assert "runs: expected at least one" in capsys.readouterr().err
