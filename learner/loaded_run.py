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
from learner.networks.reading import advice_on_misfit
from seed.errors import CheckpointError, expected, require
from seed.serialization import structure
from seed.specs import EnvSpec


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


def load_weights(network: nn.Module, run: LoadedRun) -> None:
    """Loads the run's weights into `network`. Raises CheckpointError if they do not fit."""
    config, checkpoint = run
    try:
        network.load_state_dict(checkpoint.weights)
    except RuntimeError as error:
        spec = structure(checkpoint.state["spec"], EnvSpec)
        refusal = expected(str(checkpoint.path), "the network of the run's config", error)
        raise CheckpointError(refusal + advice_on_misfit(spec, config.network)) from error
