"""Which checkpoints are kept, on file systems that lack one thing or another."""

import errno
import json
import logging
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from learner.checkpoint import load_checkpoint, save_checkpoint
from learner.checkpoints.directory import newest_first, next_save_number, was_ever_saved

DAY_S = 86_400.0


def save(directory: Path, step: int, *, keep: int = 3) -> Path:
    """Saves a checkpoint whose weights tell its step."""
    weights = {"weight": torch.full((2,), float(step))}
    return save_checkpoint(directory, step, weights, {"env_steps": step}, keep=keep)


def kept(directory: Path) -> list[int]:
    """Returns the steps of the whole checkpoints, the newest first."""
    return [int(path.name) for path in newest_first(directory)]


def names(directory: Path) -> list[str]:
    """Returns the names of all that is in a directory, sorted."""
    return sorted(path.name for path in directory.iterdir())


def refuse(patch: pytest.MonkeyPatch, module: Any, call: str, number: int, only: str = "") -> None:
    """Lets a function fail with an errno, if its first argument contains `only`."""
    real: Callable[..., Any] = getattr(module, call)

    def refused(*args: Any, **kwargs: Any) -> Any:
        if only in str(args[0]):
            raise OSError(number, os.strerror(number))
        return real(*args, **kwargs)

    patch.setattr(module, call, refused)


def set_meta(checkpoint: Path, **changes: object) -> None:
    """Changes meta.json; None removes an entry."""
    meta = json.loads((checkpoint / "meta.json").read_text()) | changes
    kept = {name: value for name, value in meta.items() if value is not None}
    (checkpoint / "meta.json").write_text(json.dumps(kept))


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_no_symlinks_cost_nothing_but_the_link(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    number: int,
) -> None:
    """Six saves succeed and keep three, the newest is found, and the log says it once."""
    refuse(monkeypatch, os, "symlink", number)
    with caplog.at_level(logging.WARNING):
        for step in range(1, 7):
            save(tmp_path, step)
    assert names(tmp_path) == ["4", "5", "6"]
    assert load_checkpoint(tmp_path).learner_step == 6
    (warning,) = caplog.messages
    assert "cannot make the symlink latest, which SEED itself does not need" in warning


def test_link_that_can_no_longer_move_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that moved to a file system without symlinks has no link to an old checkpoint."""
    save(tmp_path, 1)
    refuse(monkeypatch, os, "symlink", errno.EPERM)
    save(tmp_path, 2)
    assert names(tmp_path) == ["1", "2"]


def test_clock_that_goes_back_changes_no_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock is set back by a day between saves 3 and 4: the last three saves are kept."""
    for step in range(1, 8):
        now = 1_800_000_000.0 + step - (DAY_S if step >= 4 else 0)
        monkeypatch.setattr(time, "time", lambda now=now: now)
        save(tmp_path, step)
    assert kept(tmp_path) == [7, 6, 5]
    (tmp_path / "7" / "state.pt").write_bytes(b"")
    assert load_checkpoint(tmp_path).learner_step == 6


def test_old_checkpoints_without_a_number_keep_their_order_and_are_older(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of an earlier version goes on: by time among the old ones, then by number."""
    for step, at in ((30, 10.0), (10, 20.0), (20, 30.0)):
        set_meta(save(tmp_path, step), save_number=None, saved_at_s=at)
    assert kept(tmp_path) == [20, 10, 30]
    assert load_checkpoint(tmp_path).learner_step == 20
    monkeypatch.setattr(time, "time", lambda: 5.0)
    save(tmp_path, 15)
    assert kept(tmp_path) == [15, 20, 10]
    assert load_checkpoint(tmp_path).learner_step == 15


def test_new_branch_at_lower_steps_goes_on_counting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The abandoned branch is pruned first, even with a clock that stands still."""
    monkeypatch.setattr(time, "time", lambda: 7.0)
    for step in (200, 300, 110, 120):
        save(tmp_path, step, keep=2)
    assert kept(tmp_path) == [120, 110]
    assert next_save_number(tmp_path) == 5


def test_directories_that_cannot_be_synced_are_not_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Network shares and FUSE refuse it; a checkpoint is saved all the same."""
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EINVAL, "Invalid argument")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    save(tmp_path, 1)
    assert load_checkpoint(tmp_path).learner_step == 1


@pytest.mark.parametrize("number", [errno.EXDEV, errno.ENOSYS, errno.EPERM])
def test_directories_that_cannot_be_renamed_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Overlays (EXDEV) and object stores rename no directory; saving and pruning still work."""
    refuse(monkeypatch, os, "rename", number)
    for step in (1, 2, 3, 4, 4):
        save(tmp_path, step, keep=2)
    assert names(tmp_path) == ["3", "4", "latest"]
    assert load_checkpoint(tmp_path).weights["weight"].tolist() == [4.0, 4.0]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_kill_while_copying_leaves_no_half_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """meta.json is copied last, and nothing is a checkpoint without it."""
    save(tmp_path, 1)

    class KilledError(BaseException):
        """Stands for kill -9."""

    real, calls = shutil.copyfile, 0

    def copyfile(source: Path, target: Path) -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            raise KilledError
        real(source, target)

    with monkeypatch.context() as patch:
        refuse(patch, os, "rename", errno.EXDEV)
        patch.setattr(shutil, "copyfile", copyfile)
        with pytest.raises(KilledError):
            save(tmp_path, 2)
    assert kept(tmp_path) == [1]
    save(tmp_path, 3)
    assert load_checkpoint(tmp_path).learner_step == 3


def test_checkpoint_that_cannot_be_removed_fails_no_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A reader on NFS holds 1 (.nfs...): the log says so once, and a later save removes it."""
    save(tmp_path, 1)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        refuse(patch, shutil, "rmtree", errno.ENOTEMPTY, only="pruned-1")
        for step in (2, 3, 4):
            save(tmp_path, step, keep=1)
        assert kept(tmp_path) == [4]
    (warning,) = (line for line in caplog.messages if "cannot remove old checkpoints" in line)
    assert warning.endswith("saving goes on")
    save(tmp_path, 5, keep=1)
    assert names(tmp_path) == ["5", "latest"]


def test_no_permission_to_remove_anything_fails_no_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A share that lets nobody delete keeps all checkpoints, and the newest is still found."""
    with caplog.at_level(logging.WARNING):
        for module, call in ((os, "rename"), (shutil, "rmtree"), (os, "unlink")):
            refuse(monkeypatch, module, call, errno.EACCES)
        for step in (1, 2, 3):
            save(tmp_path, step, keep=1)
    assert load_checkpoint(tmp_path).learner_step == 3
    assert all("saving goes on" in line for line in caplog.messages)
    assert len(caplog.messages) == len(set(caplog.messages)) <= 4


def test_copy_of_a_run_that_followed_the_link_goes_on(tmp_path: Path) -> None:
    """scp -r makes a directory of `latest`, which must not hide the checkpoints saved later."""
    save(tmp_path / "run", 1)
    save(tmp_path / "run", 2)
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "run", copy, symlinks=False)
    assert not (copy / "latest").is_symlink()
    save(copy, 3)
    assert names(copy) == ["1", "2", "3", "latest"]
    assert os.readlink(copy / "latest") == "3"
    assert load_checkpoint(copy).learner_step == 3


def test_copy_of_the_newest_checkpoint_alone_is_enough(tmp_path: Path) -> None:
    """A copy of checkpoints/latest is resumed, and gets its own name back at the next save."""
    save(tmp_path / "run", 7)
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "run" / "latest", copy / "latest")
    assert was_ever_saved(copy)
    assert load_checkpoint(copy).learner_step == 7
    save(copy, 8)
    assert names(copy) == ["7", "8", "latest"]


def test_files_of_other_programs_are_no_checkpoints(tmp_path: Path) -> None:
    """After a kill during the first save a file manager's files do not stop --resume."""
    for name in (".DS_Store", ".nfs0000001", "lost+found", ".tmp-3", "Thumbs.db"):
        (tmp_path / name).mkdir()
    assert not was_ever_saved(tmp_path)
    save(tmp_path, 1)
    assert was_ever_saved(tmp_path)
    assert kept(tmp_path) == [1]
