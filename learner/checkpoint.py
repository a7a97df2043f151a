"""Saves and restores everything that resuming a run needs.

Called by the trainer thread, and at start-up. The learner decides the contents of the state;
this file sees tensors, numbers and text. No code in a file is executed.

    checkpoints/
    |-- .tmp-1200/        being written; renamed to 1200 once it is complete and synced
    |-- .replaced-1000/   the old 1000, after a new 1000 took its place; removed next
    |-- 1000/             meta.json (sizes and hashes), weights.safetensors, state.pt
    |                     and, in the newest alone, replay.safetensors if there is a replay
    |-- best/             the same files, without a replay; removed only for a better one
    `-- latest -> 1000    for people and scripts; missing where there are no symlinks

A kill at any moment leaves one whole checkpoint that `load_checkpoint` finds.
"""

import io
import logging
import time
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from learner.checkpoints import directory as directories
from learner.checkpoints import files
from learner.checkpoints.best import Score
from seed.errors import CheckpointError, expected

_LOG = logging.getLogger(__name__)

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
      keep: Checkpoints to leave, this one included; at least 1. The best one is not counted.
      replay: Tensors on the CPU that share no memory. Older checkpoints lose theirs.

    Returns:
      The checkpoint's own directory.

    Raises:
      CheckpointError: the checkpoint cannot be written; earlier ones are untouched.
    """
    assert keep >= 1, "the checkpoint just written is never removed"
    path = directory / str(learner_step)
    try:
        _write(path, learner_step, weights, state, replay=replay)
        directories.point_latest_to(path)
        directories.prune(directory, path, keep)
    except OSError as error:
        raise _cannot_write(directory, error) from error
    return path


def save_best_checkpoint(
    directory: Path,
    learner_step: int,
    weights: dict[str, Tensor],
    state: dict[str, Any],
    score: Score,
) -> Path:
    """Writes the best checkpoint with its score, in place of the best one so far.

    Arguments, result and errors are those of `save_checkpoint`.
    """
    path = directory / directories.BEST
    try:
        _write(path, learner_step, weights, state, score=score)
    except OSError as error:
        raise _cannot_write(directory, error) from error
    return path


def load_checkpoint(path: Path, device: torch.device | str = "cpu") -> Checkpoint:
    """Reads a checkpoint.

    Args:
      path: One checkpoint, or a run's directory of checkpoints. There the newest whole
        checkpoint is read; the best one only if no other is whole.
      device: Where the weights go.

    Raises:
      CheckpointError: there is no whole checkpoint; the message says what is wrong and where.
    """
    if any((path / name).exists() for name in (files.META, files.WEIGHTS, files.STATE)):
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


def find_checkpoint(directory: Path, name: str) -> Path:
    """Returns where a run's checkpoint lies: "best", or the one of a learner step.

    Raises:
      CheckpointError: there is no such checkpoint; the message tells those that there are.
    """
    steps: dict[str, Path] = {}
    best = None
    if directory.is_dir():
        best = directories.best_in(directory)
        for path in _candidates(directory):
            if path.exists():
                steps.setdefault(str(_step_of(path)), path)
    if name == directories.BEST and best is not None:
        return best
    if name in steps:
        return steps[name]
    there = [*(["best"] if best else []), *(["latest"] if steps else []), *steps]
    wanted = "the name of one that there is" if there else "a run that has saved one"
    raise CheckpointError(
        expected("checkpoint", wanted, f"{name!r}; there are {', '.join(there) or 'none'}")
    )


def best_score(directory: Path) -> Score | None:
    """Returns the score of a run's best checkpoint; None if there is none that looks whole."""
    path = directories.best_in(directory)
    if path is None:
        return None
    try:
        meta = files.read_meta(path)
        sizes = {name: meta["files"][name]["bytes"] for name in (files.WEIGHTS, files.STATE)}
        is_whole = all((path / name).stat().st_size == size for name, size in sizes.items())
        score = Score(**meta["score"])
        return score if is_whole and isinstance(score.value, float) else None
    except (CheckpointError, OSError, LookupError, TypeError):
        return None


def was_ever_saved(directory: Path) -> bool:
    """Tells whether a run ever finished a checkpoint; see `directories.was_ever_saved`."""
    return directories.was_ever_saved(directory)


def load_replay(checkpoint: Path) -> dict[str, Tensor] | None:
    """Returns the replay saved with one checkpoint; None if there is none.

    Raises:
      CheckpointError: the replay is torn or damaged.
    """
    file = checkpoint / files.REPLAY
    if not file.exists():
        return None
    wanted = files.read_meta(checkpoint)["files"].get(files.REPLAY)
    try:
        found = files.fingerprint_of_file(file)
        if found != wanted:
            raise CheckpointError(expected(str(file), f"{wanted}", f"{found} (torn or damaged)"))
        return safetensors.torch.load_file(file)
    except (OSError, safetensors.SafetensorError) as error:
        raise CheckpointError(expected(str(file), "safetensors", error)) from error


def _write(
    path: Path,
    learner_step: int,
    weights: dict[str, Tensor],
    state: dict[str, Any],
    *,
    replay: dict[str, Tensor] | None = None,
    score: Score | None = None,
) -> None:
    """Writes a checkpoint aside and gives it its name. Raises OSError."""
    _assert_plain(state, "state")
    directory = path.parent
    payload = {files.WEIGHTS: _weights_bytes(weights), files.STATE: _state_bytes(state)}
    directory.mkdir(parents=True, exist_ok=True)
    directories.finish_interrupted(directory)
    meta = {
        "format_version": files.FORMAT_VERSION,
        "learner_step": learner_step,
        "env_steps": state.get("env_steps"),
        "save_number": directories.next_save_number(directory),
        "saved_at_s": time.time(),
        "files": {name: files.fingerprint(data) for name, data in payload.items()},
    }
    if score is not None:
        meta["score"] = score._asdict()
    aside = directories.unused(directory / f"{directories.ASIDE}{path.name}")
    files.write_files(aside, payload, meta, replay)
    directories.move_into_place(aside, path)


def _cannot_write(directory: Path, error: OSError) -> CheckpointError:
    return CheckpointError(
        expected(str(directory), "room and permission to write a checkpoint", error)
    )


def _weights_bytes(weights: dict[str, Tensor]) -> bytes:
    # Own copies: safetensors refuses tensors that share storage.
    copies = {name: w.detach().to("cpu", copy=True).contiguous() for name, w in weights.items()}
    return safetensors.torch.save(copies)


def _state_bytes(state: dict[str, Any]) -> bytes:
    # On the CPU, so that a machine with another device can read it.
    on_host = tree_map_only(Tensor, lambda x: x.detach().cpu(), state)
    buffer = io.BytesIO()
    torch.save(on_host, buffer)
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


def _candidates(directory: Path) -> Iterator[Path]:
    """Yields the possible whole checkpoints: the newest first, and the best one last."""
    try:
        yield from directories.newest_first(directory)
    except OSError as error:
        wanted = "a directory that can be read"
        raise CheckpointError(expected(str(directory), wanted, error.strerror)) from error
    best = directories.best_in(directory)
    if best is not None:
        yield best


def _step_of(path: Path) -> int:
    return files.read_meta(path)["learner_step"]


def _read(path: Path, device: torch.device | str) -> Checkpoint:
    meta = files.read_meta(path)
    weights_file, state_file = path / files.WEIGHTS, path / files.STATE
    weights_bytes = files.read_verified(weights_file, meta["files"].get(files.WEIGHTS))
    state_bytes = files.read_verified(state_file, meta["files"].get(files.STATE))
    try:
        weights = safetensors.torch.load(weights_bytes)
    except safetensors.SafetensorError as error:
        raise CheckpointError(expected(str(weights_file), "safetensors", error)) from error
    try:
        state = torch.load(io.BytesIO(state_bytes), map_location="cpu", weights_only=True)
    # torch.load raises a dozen types of errors for a file that is no plain checkpoint.
    except Exception as error:
        wanted = "tensors, numbers and strings saved by torch.save"
        raise CheckpointError(expected(str(state_file), wanted, error)) from error
    if not isinstance(state, dict):
        raise CheckpointError(expected(str(state_file), "a dict", type(state).__name__))
    weights = {name: tensor.to(device) for name, tensor in weights.items()}
    return Checkpoint(meta["learner_step"], weights, state, path)
