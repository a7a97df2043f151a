"""The names of a run's files are those that earlier runs have on disk."""

from pathlib import Path

import pytest

from learner.config.run_dir import RunDir


def test_files_have_the_names_that_users_know() -> None:
    """README and docs name them; `seed eval` reads runs of earlier versions."""
    run_dir = RunDir(Path("runs/x"))
    paths = {
        run_dir.config,
        run_dir.metrics,
        run_dir.checkpoints,
        run_dir.non_finite,
        run_dir.actor_log(1),
        run_dir.eval_actor_log(0),
        run_dir.lock,
    }
    names = (
        "learner.lock config.yaml metrics.jsonl checkpoints non_finite actor-1.log eval-actor-0.log"
    )
    assert paths == {Path("runs/x") / name for name in names.split()}


@pytest.mark.parametrize(
    ("metrics", "has_results"),
    [
        (None, False),
        ("", False),
        ('{"env_steps": 0, "wall_s": 2.5}\n', False),
        ('{"env_steps": 0}\n{"env_steps": 64}\n', True),
        ('{"env_steps": 0}\n{"env_st', True),
        ("notes of another program", True),
        ("[1]\n", True),
    ],
)
def test_directory_has_results_once_env_steps_are_counted(
    tmp_path: Path, metrics: str | None, has_results: bool
) -> None:
    """A start that failed leaves none; a file that cannot be read is taken for some."""
    if metrics is not None:
        (tmp_path / "metrics.jsonl").write_text(metrics)
    (tmp_path / "config.yaml").write_text("")
    (tmp_path / "actor-0.log").write_text("failed")
    assert RunDir(tmp_path).has_results is has_results


def test_directory_has_results_once_a_checkpoint_was_begun(tmp_path: Path) -> None:
    """A run that was killed during its first save has trained."""
    (tmp_path / "checkpoints").mkdir()
    assert RunDir(tmp_path).has_results
