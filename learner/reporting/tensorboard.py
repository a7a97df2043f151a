"""TensorBoard's event files: curves, the config as text and as hyperparameters, an overview.

The thread that reports calls it. TensorBoard's first page shows groups of curves by name, so
the returns have a group whose name comes first.
"""

import math
import os
from pathlib import Path
from typing import Any

import yaml
from torch.utils.tensorboard.summary import hparams, scalar
from torch.utils.tensorboard.writer import SummaryWriter

from learner.config.run_config import RunConfig
from learner.reporting.metric_table import metric_of
from seed.serialization import unstructure

# What people look at first: metric -> a second curve, in the group that comes first.
FIRST_CURVES = {
    "episode/return_mean_100": "1_returns/mean_100",
    "episode/return_mean": "1_returns/mean",
    "episode/return_min": "1_returns/min",
    "episode/return_max": "1_returns/max",
    "episode/return_std": "1_returns/std",
    "eval/return_mean": "1_returns/eval_mean",
}

# The page "Custom scalars": title -> metrics. A margin is a curve between two bounds.
_OVERVIEW = {
    "Overview": {
        "return": [
            "Margin",
            ["episode/return_mean", "episode/return_min", "episode/return_max"],
        ],
        "evaluation return": [
            "Margin",
            ["eval/return_mean", "eval/return_min", "eval/return_max"],
        ],
        "mean of 100 games": ["Multiline", ["episode/return_mean_100"]],
        "episode length": ["Multiline", ["episode/length_mean", "eval/length_mean"]],
        "explained variance": ["Multiline", ["value/explained_variance"]],
        "entropy": ["Multiline", ["policy/entropy_mean"]],
        "env steps a second": ["Multiline", ["env_steps_per_s"]],
        "policy lag": ["Multiline", ["policy/lag_mean", "policy/lag_max"]],
    }
}

# The results by which the page "HParams" compares runs: their last values.
_RESULTS = ("episode/return_mean_100", "eval/return_mean", "env_steps", "wall_s")


class TensorBoardSink:
    """Writes TensorBoard event files, with env steps on the horizontal axis.

    TensorBoard shows the meaning and the unit of each metric beside its curve.
    """

    def __init__(
        self, directory: Path, *, resumed_at: int | None = None, config: RunConfig | None = None
    ) -> None:
        """Opens a new event file in `directory`.

        Args:
          directory: Where the run's event files are.
          resumed_at: Env steps of the checkpoint that the run resumes. TensorBoard then
            drops the values that an earlier process reported after that step.
          config: of the run, shown as text and as hyperparameters.
        """
        self._writer = SummaryWriter(os.fspath(directory), purge_step=resumed_at)
        self._described: set[str] = set()
        self._end: Any = None
        self._writer.add_custom_scalars(_OVERVIEW)
        if config is not None:
            self._writer.add_text("config", _as_markdown(config), resumed_at or 0)
            experiment, start, self._end = hparams(
                hyperparameters(config), dict.fromkeys(_RESULTS, 0.0)
            )
            self._add(experiment)
            self._add(start)

    def write(self, step: int, report: dict[str, float]) -> None:
        for name, value in report.items():
            self._add_scalar(name, name, value, step)
            if first := FIRST_CURVES.get(name):
                self._add_scalar(first, name, value, step)
        self._writer.flush()

    def close(self) -> None:
        if self._end is not None:
            self._add(self._end)
        self._writer.close()

    def _add_scalar(self, tag: str, name: str, value: float, step: int) -> None:
        """Does what `SummaryWriter.add_scalar` does, which takes no description."""
        summary = scalar(tag, value)
        if tag not in self._described:
            summary.value[0].metadata.summary_description = metric_of(name).help
            self._described.add(tag)
        self._add(summary, step)

    def _add(self, summary: Any, step: int | None = None) -> None:
        assert self._writer.file_writer is not None, "there is one until `close`"
        self._writer.file_writer.add_summary(summary, step)


def hyperparameters(config: RunConfig) -> dict[str, str | float]:
    """Returns the config's fields by their paths, "agent.batch_size", for the page "HParams".

    The page takes finite numbers, truth values and texts, one type for each field. So lists are
    written as text, and fields that are None or infinite are left out.
    """
    return dict(_flat("", unstructure(config)))


def _flat(path: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        prefix = f"{path}." if path else ""
        return [pair for key, each in value.items() for pair in _flat(f"{prefix}{key}", each)]
    if isinstance(value, list):
        return [(path, " ".join(map(str, value)))]
    is_absent = value is None or (isinstance(value, float) and not math.isfinite(value))
    return [] if is_absent else [(path, value)]


def _as_markdown(config: RunConfig) -> str:
    """Returns the config as YAML in a block of code, which four spaces begin."""
    text = yaml.safe_dump(unstructure(config), sort_keys=False)
    return "".join(f"    {line}\n" for line in text.splitlines())
