"""Makes the evidence of a memory task: docs/results/<name>.json and a plot beside it.

    python -m tools.memory_results runs/memory/* --name memory-recall-40

Takes runs of one preset, some with an LSTM and some without, a few seeds each. Reads what
`tools.results` reads, and eval.json in each run's directory: the output of `seed eval --json`.
"""

import dataclasses
import functools
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tyro
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from learner.config.config_file import load_config
from learner.config.run_dir import RunDir
from seed.env_config import EnvConfig
from seed.errors import ConfigError, exits_on_error, expected, require
from tools.results import (
    RETURN,
    Report,
    read_evaluation,
    read_reports,
    series,
    summarise,
    write_evidence,
)

# Fields of each seed's run. Fields with the same value in all runs stand once at the top.
_PER_SEED = (
    "command",
    "git_commit",
    "success_rate",
    "eval_return_mean",
    "eval_episodes",
    "return_mean_100",
    "env_steps",
    "wall_s",
    "env_steps_per_s",
)
_MEANS = ("success_rate", "eval_return_mean", "return_mean_100", "env_steps", "wall_s")
_SHARED = ("date", "hardware", "git_commit", "versions", "preset", "env_id")

# Condition -> its colour in the plot.
_COLOURS = {"with memory": "tab:blue", "without memory": "tab:orange"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryResultsArgs:
    """Makes the evidence of a memory task: a JSON file and a plot beside it."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Directories of the runs."""
    name: str
    """Name of the files, without an ending."""
    out: Path = Path("docs/results")
    """Directory of the files."""
    command: str = "make memory"
    """Command that made all of the runs."""
    success_return: float = 1.0
    """An evaluation episode with at least this return is a success (1 for Recall)."""

    def __post_init__(self) -> None:
        require(len(self.runs) >= 1, "runs", "at least one", self.runs)


class MemoryRun(NamedTuple):
    """One seed, with or without memory."""

    rng_seed: int
    has_memory: bool
    env: EnvConfig
    reports: list[Report]
    summary: dict[str, Any]
    """What `tools.results.summarise` returns, and the evaluation."""


def read_run(run: Path, success_return: float) -> MemoryRun:
    """Reads one run directory.

    Raises:
      ConfigError: a file is missing or torn; the message names it.
    """
    config = load_config(RunDir(run).config)
    reports = read_reports(RunDir(run).metrics)
    returns = read_evaluation(run / "eval.json", "returns")["returns"]
    evaluation = {
        "success_rate": sum(x >= success_return for x in returns) / len(returns),
        "eval_return_mean": statistics.fmean(returns),
        "eval_episodes": len(returns),
    }
    summary = summarise(run, reports, []) | evaluation
    return MemoryRun(config.rng_seed, config.network.lstm_size > 0, config.env, reports, summary)


def compare(runs: list[MemoryRun], command: str) -> dict[str, Any]:
    """Returns the object of docs/results/<name>.json.

    The runs with memory stand at the top: means over the seeds (the sum for `eval_episodes`), and
    "per_seed". The other runs stand under "without_memory", by the same names.

    Raises:
      ConfigError: the runs differ in environment, none has memory, or all have it.
    """
    runs = sorted(runs, key=lambda run: run.rng_seed)
    with_memory = [run for run in runs if run.has_memory]
    without_memory = [run for run in runs if not run.has_memory]
    if not with_memory or not without_memory:
        got = f"{len(with_memory)} and {len(without_memory)}"
        raise ConfigError(expected("runs", "some with and some without memory", got))
    for run in runs:
        if run.env != runs[0].env:
            raise ConfigError(expected("runs", f"all of {runs[0].env}", run.env))
    shared = {name: with_memory[0].summary[name] for name in _SHARED}
    return (
        {"command": command}
        | shared
        | {"env_kwargs": runs[0].env.make_kwargs}
        | _over_seeds(with_memory)
        | {"without_memory": _over_seeds(without_memory)}
    )


def _over_seeds(runs: list[MemoryRun]) -> dict[str, Any]:
    def values(name: str) -> list[float]:
        return [run.summary[name] for run in runs if run.summary[name] is not None]

    return {
        "rng_seeds": [run.rng_seed for run in runs],
        **{name: statistics.fmean(values(name)) for name in _MEANS if values(name)},
        "eval_episodes": sum(values("eval_episodes")),
        "per_seed": [
            {"rng_seed": run.rng_seed} | {name: run.summary[name] for name in _PER_SEED}
            for run in runs
        ],
    }


def plot(runs: list[MemoryRun], path: Path) -> None:
    """Draws each run's return in training against env steps, and its evaluation at the end."""
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    env = runs[0].env
    figure.suptitle(f"{env.env_id} {env.env_kwargs}, {runs[0].summary['preset']}")
    for label, colour in _COLOURS.items():
        chosen = [run for run in runs if run.has_memory == (label == "with memory")]
        for run in chosen:
            axes.plot(*series(run.reports, RETURN), color=colour, linewidth=1, alpha=0.7)
        ends = [run.summary["env_steps"] for run in chosen]
        evaluations = [run.summary["eval_return_mean"] for run in chosen]
        name = f"{label}, {len(chosen)} seeds"
        axes.plot(ends, evaluations, "o", color=colour, label=name, clip_on=False)
    axes.set_xlabel("env steps")
    axes.set_ylabel(
        "return: lines, last 100 games of training,\nexploring; dots, greedy games after"
    )
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


@exits_on_error("memory_results")
def main(argv: Sequence[str]) -> int:
    """Writes the JSON and the plot; returns the exit code."""
    args = tyro.cli(MemoryResultsArgs, prog="python -m tools.memory_results", args=argv)
    runs = [read_run(run, args.success_return) for run in args.runs]
    summary = compare(runs, args.command)
    write_evidence(summary, functools.partial(plot, runs), out=args.out, name=args.name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
