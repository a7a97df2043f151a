"""Reads a finished or running run: its config and a checkpoint.

Used by `seed eval` and by `load_policy`.
"""

from pathlib import Path
from typing import NamedTuple

from torch import nn

from learner.checkpoint import Checkpoint, find_checkpoint, load_checkpoint
from learner.config.config_file import load_config
from learner.config.run_config import RunConfig
from learner.config.run_dir import run_of
from seed.errors import CheckpointError, expected, require


class LoadedRun(NamedTuple):
    """A run's config, and one of its checkpoints."""

    config: RunConfig
    checkpoint: Checkpoint


def load_run(path: Path, checkpoint: str | None = None) -> LoadedRun:
    """Reads a run and one of its checkpoints.

    Args:
      path: a run directory, or the directory of one checkpoint.
      checkpoint: of a run directory: "latest", "best" or a learner step. None: "latest".

    Raises:
      ConfigError, CheckpointError: `path` is neither, there is no such checkpoint, or its files
        are broken.
    """
    run = run_of(path)
    if path != run.path:
        require(checkpoint is None, "checkpoint", "none, as RUN is a checkpoint", checkpoint)
        return LoadedRun(load_config(run.config), load_checkpoint(path))
    found = run.checkpoints
    if checkpoint not in (None, "latest"):
        found = find_checkpoint(run.checkpoints, checkpoint)
    return LoadedRun(load_config(run.config), load_checkpoint(found))


def load_weights(network: nn.Module, checkpoint: Checkpoint) -> None:
    """Loads a checkpoint's weights into `network`. Raises CheckpointError if they do not fit."""
    try:
        network.load_state_dict(checkpoint.weights)
    except RuntimeError as error:
        raise CheckpointError(
            expected(str(checkpoint.path), "the network of the run's config", error)
        ) from error
