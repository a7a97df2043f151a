"""Reads a finished or running run: its config and a checkpoint.

Used by `seed eval` and by `load_policy`.
"""

from pathlib import Path
from typing import NamedTuple

from torch import nn

from learner.checkpoint import Checkpoint, load_checkpoint
from learner.config.config_file import load_config
from learner.config.run_config import RunConfig
from learner.config.run_dir import RunDir
from seed.errors import CheckpointError, ConfigError, expected


class LoadedRun(NamedTuple):
    """A run's config, and one of its checkpoints."""

    config: RunConfig
    checkpoint: Checkpoint


def load_run(path: Path) -> LoadedRun:
    """Reads a run directory (its newest checkpoint) or one of its checkpoints.

    Raises:
      ConfigError, CheckpointError: `path` is neither, or its files are broken.
    """
    run = RunDir(path) if RunDir(path).config.exists() else RunDir(path.parent.parent)
    if not run.config.exists():
        raise ConfigError(expected("RUN", "a run directory with a config.yaml", path))
    checkpoint = load_checkpoint(run.checkpoints if path == run.path else path)
    return LoadedRun(load_config(run.config), checkpoint)


def load_weights(network: nn.Module, checkpoint: Checkpoint) -> None:
    """Loads a checkpoint's weights into `network`. Raises CheckpointError if they do not fit."""
    try:
        network.load_state_dict(checkpoint.weights)
    except RuntimeError as error:
        raise CheckpointError(
            expected(str(checkpoint.path), "the network of the run's config", error)
        ) from error
