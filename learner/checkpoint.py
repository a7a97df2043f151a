"""Saves and restores everything that resuming a run needs.

Called by the trainer thread, and at start-up. The learner decides the contents of the state;
this file sees tensors, numbers and text. No code in a file is executed.

    checkpoints/
    |-- .tmp-1200/        being written; renamed to 1200 once it is complete and synced
    |-- .replaced-1000/   the old 1000, after a new 1000 took its place; removed next
    |-- 1000/             meta.json (sizes and hashes), weights.safetensors, state.pt
    |                     and, in the newest alone, replay.safetensors if there is a replay
    `-- latest -> 1000

A kill at any moment leaves one whole checkpoint that `load_checkpoint` finds.
"""

import hashlib
import io
import json
import logging
import os
import shutil
import time
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from seed.errors import CheckpointError, expected

_LOG = logging.getLogger(__name__)

FORMAT_VERSION = 1

_META = "meta.json"
_WEIGHTS = "weights.safetensors"
_STATE = "state.pt"
_REPLAY = "replay.safetensors"
_LATEST = "latest"
_ASIDE = ".tmp-"
_REPLACED = ".replaced-"

# Exactly these types: torch.load refuses NumPy's scalars, which are subclasses of some of them.
_PLAIN_TYPES = (bool, int, float, str, type(None))


class Checkpoint(NamedTuple):
    """A checkpoint, read and verified."""

    learner_step: int
    weights: dict[str, Tensor]
    """Parameter name -> tensor, on the device asked for."""
    state: dict[str, Any]
    """The saved state; its tensors are on the CPU."""
    path: Path


def save_checkpoint(
    directory: Path,
    learner_step: int,
    weights: dict[str, Tensor],
    state: dict[str, Any],
    *,
    keep: int,
    replay: dict[str, Tensor] | None = None,
) -> Path:
    """Writes a checkpoint, points `latest` to it and removes all but the newest `keep`.

    Args:
      directory: The run's checkpoints; made if missing.
      learner_step: Names the checkpoint. One of the same step is replaced.
      weights: Parameter name -> tensor, on any device.
      state: Tensors, numbers, strings and None in nested dicts, lists and tuples.
        Its "env_steps", if any, is repeated in meta.json for people to see.
      keep: Checkpoints to leave, this one included; at least 1.
      replay: Tensors on the CPU that share no memory. Older checkpoints lose theirs.

    Returns:
      The checkpoint's own directory.

    Raises:
      CheckpointError: the checkpoint cannot be written; earlier ones are untouched.
    """
    assert keep >= 1, "the checkpoint just written is never removed"
    _assert_plain(state, "state")
    payload = {_WEIGHTS: _weights_bytes(weights), _STATE: _state_bytes(state)}
    meta = {
        "format_version": FORMAT_VERSION,
        "learner_step": learner_step,
        "env_steps": state.get("env_steps"),
        "saved_at_s": time.time(),
        "files": {name: _fingerprint(data) for name, data in payload.items()},
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _finish_interrupted(directory)
        aside = directory / f"{_ASIDE}{learner_step}"
        _write_whole(aside, payload, meta, replay)
        path = _move_into_place(directory, aside, learner_step)
        _point_latest_to(path)
        _prune(directory, path, keep)
    except OSError as error:
        wanted = "room and permission to write a checkpoint"
        raise CheckpointError(expected(str(directory), wanted, error)) from error
    return path


def load_checkpoint(path: Path, device: torch.device | str = "cpu") -> Checkpoint:
    """Reads a checkpoint.

    Args:
      path: One checkpoint, or a run's directory of checkpoints. There `latest` is read, or the
        newest whole checkpoint if `latest` is missing or torn.
      device: Where the weights go.

    Raises:
      CheckpointError: there is no whole checkpoint; the message says what is wrong and where.
    """
    if any((path / name).exists() for name in (_META, _WEIGHTS, _STATE)):
        return _read(path, device)
    if not path.is_dir():
        raise CheckpointError(expected(str(path), "a directory of checkpoints", "nothing there"))
    reasons = []
    for candidate in _candidates(path):
        try:
            checkpoint = _read(candidate, device)
        except CheckpointError as error:
            reasons.append(str(error))
            _LOG.warning("skipped a broken checkpoint: %s", error)
        else:
            return checkpoint
    got = "; ".join(reasons) or "none"
    raise CheckpointError(expected(str(path), "at least one whole checkpoint", got))


def was_ever_saved(directory: Path) -> bool:
    """Tells whether a run ever finished a checkpoint, even if it is damaged now.

    A kill during the first save leaves only the unfinished checkpoint.
    """
    return directory.is_dir() and any(
        not path.name.startswith(_ASIDE) for path in directory.iterdir()
    )


def load_replay(checkpoint: Path) -> dict[str, Tensor] | None:
    """Returns the replay saved with one checkpoint; None if there is none.

    Raises:
      CheckpointError: the replay is torn or damaged.
    """
    file = checkpoint / _REPLAY
    if not file.exists():
        return None
    fingerprint = _read_meta(checkpoint)["files"].get(_REPLAY)
    found = _fingerprint_of_file(file)
    if found != fingerprint:
        raise CheckpointError(expected(str(file), f"{fingerprint}", f"{found} (torn or damaged)"))
    try:
        return safetensors.torch.load_file(file)
    except safetensors.SafetensorError as error:
        raise CheckpointError(expected(str(file), "safetensors", error)) from error


def _weights_bytes(weights: dict[str, Tensor]) -> bytes:
    # Own copies: safetensors refuses tensors that share storage.
    copies = {name: w.detach().to("cpu", copy=True).contiguous() for name, w in weights.items()}
    return safetensors.torch.save(copies)


def _state_bytes(state: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def _assert_plain(value: object, name: str) -> None:
    """Refuses values at saving that loading would refuse: a checkpoint must be loadable."""
    if isinstance(value, dict) and type(value) in (dict, OrderedDict):
        for key, item in value.items():
            _assert_plain(key, f"a key of {name}")
            _assert_plain(item, f"{name}[{key!r}]")
    elif isinstance(value, list | tuple) and type(value) in (list, tuple):
        for index, item in enumerate(value):
            _assert_plain(item, f"{name}[{index}]")
    else:
        plain = type(value) in _PLAIN_TYPES or isinstance(value, Tensor)
        assert plain, expected(name, "tensors, numbers, strings and containers", type(value))


def _fingerprint(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _fingerprint_of_file(file: Path) -> dict[str, Any]:
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256")
    return {"bytes": file.stat().st_size, "sha256": digest.hexdigest()}


def _finish_interrupted(directory: Path) -> None:
    """Completes or removes the remains of an earlier save that a kill interrupted."""
    for stale in directory.glob(f"{_ASIDE}*"):
        _remove(stale)
    for replaced in directory.glob(f"{_REPLACED}*"):
        successor = directory / replaced.name.removeprefix(_REPLACED)
        if successor.exists():
            shutil.rmtree(replaced)
        else:
            os.rename(replaced, successor)


def _write_whole(
    aside: Path,
    payload: dict[str, bytes],
    meta: dict[str, Any],
    replay: dict[str, Tensor] | None,
) -> None:
    """Writes and syncs the files of `aside`; removes them if that fails."""
    try:
        aside.mkdir()
        if replay is not None:
            # Written straight to the file: as bytes the replay would be in memory twice.
            safetensors.torch.save_file(replay, aside / _REPLAY)
            meta["files"][_REPLAY] = _fingerprint_of_file(aside / _REPLAY)
        document = (json.dumps(meta, indent=2) + "\n").encode()
        for name, data in (payload | {_META: document}).items():
            (aside / name).write_bytes(data)
        for file in aside.iterdir():
            _sync(file)
        _sync(aside)
    except (OSError, safetensors.SafetensorError) as error:
        shutil.rmtree(aside, ignore_errors=True)
        # safetensors raises a type of its own for write errors.
        raise error if isinstance(error, OSError) else OSError(str(error)) from error


def _move_into_place(directory: Path, aside: Path, learner_step: int) -> Path:
    path = directory / str(learner_step)
    replaced = directory / f"{_REPLACED}{learner_step}"
    # A directory cannot be replaced by a rename, so the old one is renamed first. Between the
    # two renames it is found under its other name.
    if path.exists():
        os.rename(path, replaced)
    os.rename(aside, path)
    _sync(directory)
    if replaced.exists():
        shutil.rmtree(replaced)
    return path


def _point_latest_to(path: Path) -> None:
    link = path.with_name(f"{_ASIDE}{_LATEST}")
    link.symlink_to(path.name)
    os.replace(link, path.with_name(_LATEST))
    _sync(path.parent)


def _prune(directory: Path, newest: Path, keep: int) -> None:
    """Removes all but `newest` and the `keep` - 1 checkpoints saved last before it."""
    older = [path for path in _by_age(directory) if path != newest]
    for path in older[keep - 1 :]:
        # The rename removes it in one step, so that no reader finds half of a checkpoint.
        doomed = path.with_name(f"{_ASIDE}pruned-{path.name}")
        os.rename(path, doomed)
        shutil.rmtree(doomed)
    for path in older[: keep - 1]:
        (path / _REPLAY).unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Waits until a file, or the names in a directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _candidates(directory: Path) -> Iterator[Path]:
    """Yields the possible whole checkpoints: `latest`, then the others, newest first."""
    latest = directory / _LATEST
    target = latest.resolve() if latest.exists() else None
    if target is not None:
        yield target
    for path in _by_age(directory):
        if path.resolve() != target:
            yield path


def _by_age(directory: Path) -> list[Path]:
    """Returns the checkpoints whose meta.json can be read, the one saved last first.

    Sorted by time, not by step: a run resumed from an older checkpoint begins a new branch
    at a lower step, and the abandoned branch must not be kept longer than the new one.
    """
    aged = []
    for path in directory.iterdir():
        if path.name.removeprefix(_REPLACED).isdecimal():
            try:
                meta = _read_meta(path)
            except CheckpointError:
                continue
            aged.append((meta["saved_at_s"], meta["learner_step"], path))
    return [path for *_, path in sorted(aged, reverse=True)]


def _read_meta(path: Path) -> dict[str, Any]:
    """Returns the checked contents of meta.json."""
    file = path / _META
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


def _read_verified(file: Path, fingerprint: object) -> bytes:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise CheckpointError(expected(str(file), "a readable file", error.strerror)) from error
    wanted = fingerprint.get("bytes") if isinstance(fingerprint, dict) else None
    if len(data) != wanted:
        raise CheckpointError(expected(str(file), f"{wanted} bytes", f"{len(data)} (torn)"))
    if _fingerprint(data) != fingerprint:
        raise CheckpointError(expected(str(file), "the contents saved", "others (damaged)"))
    return data


def _read(path: Path, device: torch.device | str) -> Checkpoint:
    meta = _read_meta(path)
    files = meta["files"]
    weights_bytes = _read_verified(path / _WEIGHTS, files.get(_WEIGHTS))
    state_bytes = _read_verified(path / _STATE, files.get(_STATE))
    try:
        weights = safetensors.torch.load(weights_bytes)
    except safetensors.SafetensorError as error:
        raise CheckpointError(expected(str(path / _WEIGHTS), "safetensors", error)) from error
    try:
        state = torch.load(io.BytesIO(state_bytes), map_location="cpu", weights_only=True)
    # torch.load raises a dozen types of errors for a file that is no plain checkpoint.
    except Exception as error:
        wanted = "tensors, numbers and strings saved by torch.save"
        raise CheckpointError(expected(str(path / _STATE), wanted, error)) from error
    if not isinstance(state, dict):
        raise CheckpointError(expected(str(path / _STATE), "a dict", type(state).__name__))
    weights = {name: tensor.to(device) for name, tensor in weights.items()}
    return Checkpoint(meta["learner_step"], weights, state, path)
