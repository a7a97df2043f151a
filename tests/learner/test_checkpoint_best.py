"""The best checkpoint: it stays beside the newest ones, and it is found by its name."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from learner.checkpoint import (
    best_score,
    find_checkpoint,
    load_checkpoint,
    save_best_checkpoint,
    save_checkpoint,
    was_ever_saved,
)
from learner.checkpoints.best import Score
from seed.errors import CheckpointError

SCORE = Score("episode/return_mean_100", 475.5, 100)


class KilledError(BaseException):
    """Stands for kill -9."""


def weights_of(step: int) -> dict[str, Tensor]:
    """Returns weights that tell their step."""
    return {"weight": torch.full((2,), float(step))}


def step_of(path: Path) -> float:
    """Returns the step of `weights_of`."""
    return load_checkpoint(path).weights["weight"][0].item()


def save(directory: Path, step: int, *, keep: int = 3) -> Path:
    """Saves a newest checkpoint."""
    return save_checkpoint(directory, step, weights_of(step), {"env_steps": step}, keep=keep)


def die_at_rename(patch: pytest.MonkeyPatch, number: int) -> None:
    """Kills the process at rename `number` (from 1), before its effect."""
    real: Callable[..., None] = os.rename
    calls = 0

    def counted(*args: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            raise KilledError
        real(*args)

    patch.setattr(os, "rename", counted)


def save_best(directory: Path, step: int, score: Score = SCORE) -> Path:
    """Saves the best checkpoint, as `save` saves the newest."""
    state = {"env_steps": step * 10}
    return save_best_checkpoint(directory, step, weights_of(step), state, score)


def test_best_checkpoint_stays_beside_the_newest(tmp_path: Path) -> None:
    """It is not counted, not pruned, not resumed, and `latest` never points to it."""
    save(tmp_path, 1)
    save_best(tmp_path, 2)
    for step in (3, 4, 5):
        save(tmp_path, step, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["4", "5", "best", "latest"]
    assert load_checkpoint(tmp_path).learner_step == 5
    assert load_checkpoint(tmp_path / "best").learner_step == 2
    assert best_score(tmp_path) == SCORE


def test_better_checkpoint_takes_the_place_of_the_best(tmp_path: Path) -> None:
    """There is one best checkpoint, with the newest score."""
    save_best(tmp_path, 2)
    better = Score("eval/return_mean", 12.25, 20)
    save_best(tmp_path, 9, better)
    assert [path.name for path in tmp_path.iterdir()] == ["best"]
    assert best_score(tmp_path) == better
    assert step_of(tmp_path / "best") == 9


@pytest.mark.parametrize("number", [1, 2, 3])
def test_kill_while_the_best_is_replaced_loses_no_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The old or the new one is found, also by its score, and the next save cleans up."""
    save_best(tmp_path, 1)
    with monkeypatch.context() as patch:
        die_at_rename(patch, number)
        with pytest.raises(KilledError):
            save_best(tmp_path, 2, Score("eval/return_mean", 500.0, 20))
    found = find_checkpoint(tmp_path, "best")
    assert step_of(found) == (1 if number < 3 else 2)
    assert best_score(tmp_path) is not None
    save(tmp_path, 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3", "best", "latest"]


def test_run_with_nothing_else_goes_on_from_its_best(tmp_path: Path) -> None:
    """A kill before the first usual save, or damage to all others, does not lose the run."""
    save_best(tmp_path, 2)
    assert was_ever_saved(tmp_path)
    assert load_checkpoint(tmp_path).learner_step == 2
    (save(tmp_path, 3) / "state.pt").unlink()
    assert load_checkpoint(tmp_path).learner_step == 2


def test_best_checkpoint_that_is_torn_has_no_score(tmp_path: Path) -> None:
    """The next score then takes its place, however low."""
    path = save_best(tmp_path, 2)
    (path / "weights.safetensors").write_bytes(b"")
    assert best_score(tmp_path) is None
    assert best_score(tmp_path / "nowhere") is None
    for score in (None, {}, {"metric": "x"}, {"metric": "x", "value": "y", "num_games": 1}):
        path = save_best(tmp_path, 2)
        meta = json.loads((path / "meta.json").read_text())
        (path / "meta.json").write_text(json.dumps(meta | {"score": score}))
        assert best_score(tmp_path) is None


def test_checkpoint_is_found_by_its_name(tmp_path: Path) -> None:
    """The best one is found by its step, too."""
    save(tmp_path, 10)
    save(tmp_path, 20)
    save_best(tmp_path, 15)
    assert find_checkpoint(tmp_path, "10") == tmp_path / "10"
    assert find_checkpoint(tmp_path, "15") == find_checkpoint(tmp_path, "best")
    assert find_checkpoint(tmp_path, "best") == tmp_path / "best"
    with pytest.raises(CheckpointError) as caught:
        find_checkpoint(tmp_path, "11")
    assert str(caught.value) == (
        "checkpoint: expected the name of one that there is, "
        "got '11'; there are best, latest, 20, 10, 15"
    )


def test_best_checkpoint_of_a_run_without_one_is_refused(tmp_path: Path) -> None:
    """The message tells which checkpoints there are."""
    save(tmp_path, 10)
    with pytest.raises(CheckpointError, match="got 'best'; there are latest, 10"):
        find_checkpoint(tmp_path, "best")
