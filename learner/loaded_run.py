"""A finished or running run, read back: its config and a checkpoint.

Used by `seed eval` and by `load_policy`.
"""

from pathlib import Path
from typing import NamedTuple

from torch import nn

from learner.checkpoint import Checkpoint, load_checkpoint
from learner.config.config_file import load_config
from learner.config.run_config import RunConfig
from seed.errors import CheckpointError, ConfigError, expected


class LoadedRun(NamedTuple):
    """A run's config, and one of its checkpoints."""

    config: RunConfig
    checkpoint: Checkpoint


def load_run(path: Path) -> LoadedRun:
    """Reads a run directory (its newest checkpoint) or one of its checkpoints.

    Raises:
      ConfigError, CheckpointError: it is neither, or is broken.
    """
    run_dir = path if (path / "config.yaml").exists() else path.parent.parent
    if not (run_dir / "config.yaml").exists():
        raise ConfigError(expected("RUN", "a run directory with a config.yaml", path))
    config = load_config(run_dir / "config.yaml")
    return LoadedRun(config, load_checkpoint(path / "checkpoints" if path == run_dir else path))


def load_weights(network: nn.Module, checkpoint: Checkpoint) -> None:
    """Gives `network` the weights of a checkpoint. Raises CheckpointError if they are another's."""
    try:
        network.load_state_dict(checkpoint.weights)
    except RuntimeError as error:
        raise CheckpointError(
            expected(str(checkpoint.path), "the network of the run's config", error)
        ) from error
