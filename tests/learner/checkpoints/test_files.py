"""Files of a checkpoint are on the disk when they count, or there is an error."""

import errno
import os
from pathlib import Path

import pytest

from learner.checkpoints.files import copy_files, fingerprint, read_verified, sync
from seed.errors import CheckpointError


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_errors_of_the_disk_are_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Only a file system that cannot sync is excused, not one that has failed."""

    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=os.strerror(number)):
        sync(tmp_path)


def test_copy_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The room that a half copy took is free again."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    (source / "meta.json").write_text("{}")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        copy_files(source, target)
    assert not target.exists()
    assert (source / "meta.json").exists()


def test_contents_are_compared_with_their_fingerprint(tmp_path: Path) -> None:
    """A file with one other byte is refused by its name."""
    file = tmp_path / "weights.safetensors"
    file.write_bytes(b"abc")
    assert read_verified(file, fingerprint(b"abc")) == b"abc"
    with pytest.raises(CheckpointError, match=r"weights\.safetensors.*damaged"):
        read_verified(file, fingerprint(b"abd"))
