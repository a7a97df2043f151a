"""The last line of a run advises what works."""

import importlib.util
from pathlib import Path

import pytest
import torch

from learner.checkpoint import save_best_checkpoint, save_checkpoint
from learner.checkpoints.best import EVAL_SCORE, TRAINING_SCORE, Score
from learner.last_words import last_words


def save(run_dir: Path, score: Score | None = None) -> None:
    """Saves a checkpoint, and a best one if a score is given."""
    save_checkpoint(run_dir / "checkpoints", 9, {"weight": torch.zeros(1)}, {}, keep=1)
    if score is not None:
        save_best_checkpoint(run_dir / "checkpoints", 7, {"weight": torch.zeros(1)}, {}, score)


def test_run_without_a_best_checkpoint(tmp_path: Path) -> None:
    """The newest checkpoint plays."""
    save(tmp_path)
    assert last_words(tmp_path) == f"saved in {tmp_path}; watch it play: seed eval {tmp_path}"


@pytest.mark.parametrize(
    ("score", "text"),
    [
        (Score(TRAINING_SCORE, 487.346, 100), "mean return 487.35 in 100 training games"),
        (Score(EVAL_SCORE, -3.0, 20), "mean return -3.00 in 20 evaluation games"),
    ],
)
def test_best_checkpoint_is_told_and_advised(tmp_path: Path, score: Score, text: str) -> None:
    """Its score says which games it was measured over."""
    save(tmp_path, score)
    assert last_words(tmp_path) == (
        f"saved in {tmp_path}; best checkpoint: {text}; "
        f"watch it play: seed eval {tmp_path} --checkpoint best"
    )


def test_learner_without_environments_does_not_advise_to_evaluate_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The learner's image has no gymnasium: `seed eval` fails there."""
    save(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert last_words(tmp_path) == (
        f"saved in {tmp_path}; "
        f"watch it play: seed eval {tmp_path}, where the environments are installed"
    )
