"""The names of a run's files are those that earlier runs have on disk."""

from pathlib import Path

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
    }
    names = "config.yaml metrics.jsonl checkpoints non_finite actor-1.log eval-actor-0.log"
    assert paths == {Path("runs/x") / name for name in names.split()}
