"""Makes the evidence of a memory task: docs/results/<name>.json and a plot beside it.

    python -m tools.memory_results runs/memory/* --name memory-recall-40

Takes runs of one preset, some with an LSTM and some without, a few seeds each. Reads
what `tools.results` reads, and as eval.json in each run what `seed eval --json` said.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from learner.config.config_file import load_config
from seed.env_config import EnvConfig
from seed.errors import ConfigError, SeedError, expected
from tools.results import RETURN, Report, read_evaluation, read_reports, series, summarise

# Of each seed's run; what is the same for all stands once at the top.
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


class MemoryRun(NamedTuple):
    """One seed, with or without memory."""

    rng_seed: int
    has_memory: bool
    env: EnvConfig
    reports: list[Report]
    summary: dict[str, Any]
    """As `tools.results.summarise` returns it, and the evaluation."""


def read_run(run: Path, success_return: float) -> MemoryRun:
    """Reads one run directory; raises ConfigError, naming the file, if one is missing or torn."""
    config = load_config(run / "config.yaml")
    reports = read_reports(run / "metrics.jsonl")
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

    At the top stand the runs with memory, under "without_memory" the others, under the
    same names: means over the seeds (`eval_episodes`: the sum), and "per_seed".

    Raises:
      ConfigError: the runs are not of one environment, or all with or all without memory.
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


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Returns the command line's values."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("runs", type=Path, nargs="+", help="directories of the runs")
    parser.add_argument("--name", required=True, help="name of the files to write")
    parser.add_argument("--out", type=Path, default=Path("docs/results"), help="where to write")
    parser.add_argument("--command", default="make memory", help="what made all of the runs")
    parser.add_argument(
        "--success-return",
        type=float,
        default=1.0,
        help="an evaluation episode with at least this return succeeded (Recall's: 1)",
    )
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Writes the JSON and the plot; returns the exit code."""
    options = parse_arguments(arguments)
    try:
        runs = [read_run(run, options.success_return) for run in options.runs]
        summary = compare(runs, options.command)
    except SeedError as error:
        print(error, file=sys.stderr)
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{options.name}.json"
    path.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    plot(runs, path.with_suffix(".png"))
    print(json.dumps(summary, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
