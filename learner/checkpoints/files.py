"""The files of one checkpoint: written and synced, read and verified. No code in a file is run.

Called by the trainer thread, and at start-up. Leaves where a checkpoint lies, and which are kept,
to `directory.py`.
"""

import errno
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from seed.errors import CheckpointError, expected

FORMAT_VERSION = 1

META = "meta.json"
WEIGHTS = "weights.safetensors"
STATE = "state.pt"
REPLAY = "replay.safetensors"

# The answers of file systems that cannot do what is asked. Network shares, FUSE and container
# overlays lack one thing or another: symlinks, syncing or renaming a directory.
UNSUPPORTED = frozenset(
    {
        errno.EPERM,
        errno.EACCES,
        errno.EINVAL,
        errno.ENOSYS,
        errno.ENOTSUP,
        errno.EOPNOTSUPP,
        errno.EXDEV,
        errno.EBADF,
        errno.EISDIR,
    }
)


def write_files(
    directory: Path,
    payload: dict[str, bytes],
    meta: dict[str, Any],
    replay: dict[str, Tensor] | None,
) -> None:
    """Makes `directory`, writes and syncs its files; removes it if that fails. Raises OSError."""
    try:
        directory.mkdir()
        if replay is not None:
            # Written straight to the file: as bytes the replay would be in memory twice.
            safetensors.torch.save_file(replay, directory / REPLAY)
            meta["files"][REPLAY] = fingerprint_of_file(directory / REPLAY)
        document = (json.dumps(meta, indent=2) + "\n").encode()
        for name, data in (payload | {META: document}).items():
            (directory / name).write_bytes(data)
        for file in directory.iterdir():
            sync(file)
        sync(directory)
    except (OSError, safetensors.SafetensorError) as error:
        shutil.rmtree(directory, ignore_errors=True)
        # safetensors raises a type of its own for write errors.
        raise error if isinstance(error, OSError) else OSError(str(error)) from error


def copy_files(source: Path, target: Path) -> None:
    """Copies a checkpoint; what a kill leaves of the copy is not whole. Raises OSError."""
    target.mkdir()
    try:
        # Nothing is a checkpoint before its meta.json is there.
        for file in sorted(source.iterdir(), key=lambda file: file.name == META):
            shutil.copyfile(file, target / file.name)
            sync(target / file.name)
        sync(target)
    except OSError:
        shutil.rmtree(target, ignore_errors=True)
        raise


def sync(path: Path) -> None:
    """Waits until a file, or the names in a directory, are on the disk.

    Does nothing where the file system cannot sync. Raises OSError for all other errors.
    """
    try:
        # Some file systems sync no file that is open for reading alone.
        descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise


def fingerprint(data: bytes) -> dict[str, Any]:
    """Returns the size and hash by which damage is noticed."""
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def fingerprint_of_file(file: Path) -> dict[str, Any]:
    """Returns the fingerprint of a file without reading it into memory at once."""
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256")
    return {"bytes": file.stat().st_size, "sha256": digest.hexdigest()}


def read_meta(checkpoint: Path) -> dict[str, Any]:
    """Returns the checked contents of meta.json. Raises CheckpointError."""
    file = checkpoint / META
    try:
        meta = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(expected(str(file), "a readable file", error.strerror)) from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(expected(str(file), "JSON", error)) from error
    version = meta.get("format_version") if isinstance(meta, dict) else None
    if version != FORMAT_VERSION:
        raise CheckpointError(expected(str(file), f"format_version {FORMAT_VERSION}", version))
    for key, kind in (("learner_step", int), ("saved_at_s", float), ("files", dict)):
        if not isinstance(meta.get(key), kind):
            raise CheckpointError(expected(f"{file}: {key}", kind.__name__, repr(meta.get(key))))
    return meta


def read_verified(file: Path, wanted: object) -> bytes:
    """Returns a file's contents if they have the fingerprint `wanted`. Raises CheckpointError."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise CheckpointError(expected(str(file), "a readable file", error.strerror)) from error
    size = wanted.get("bytes") if isinstance(wanted, dict) else None
    if len(data) != size:
        raise CheckpointError(expected(str(file), f"{size} bytes", f"{len(data)} (torn)"))
    if fingerprint(data) != wanted:
        raise CheckpointError(expected(str(file), "the contents saved", "others (damaged)"))
    return data
