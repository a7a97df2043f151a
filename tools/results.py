"""Makes the evidence of a run: docs/results/<name>.json and a plot beside it.

    python tools/results.py runs/pong --name pong --thresholds 0 15 18

Reads the run's metrics.jsonl and config.yaml, and the output of `seed eval --json` if it is
given. The same run always gives the same files.
"""

import dataclasses
import datetime
import functools
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tyro
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from learner.config.config_file import load_config, load_provenance
from learner.config.run_dir import RunDir
from seed.errors import ConfigError, exits_on_error, expected
from seed.provenance import describe_hardware

RETURN = "episode/return_mean_100"
SPEED = "env_steps_per_s"

Report = dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResultsArgs:
    """Makes the evidence of a run: a JSON file and a plot beside it."""

    run: tyro.conf.Positional[Path]
    """Directory of the run."""
    name: str
    """Name of the files, without an ending."""
    out: Path = Path("docs/results")
    """Directory of the files."""
    evaluation: Path | None = None
    """File with the output of `seed eval --json` on the run."""
    command: str | None = None
    """Command that made the run; by default the one that last trained it."""
    thresholds: tuple[float, ...] = ()
    """Mean returns; for each, the evidence says when the run first reached it."""


class Crossing(NamedTuple):
    """When the mean return of the last 100 full games first reached a threshold."""

    return_mean_100: float
    env_steps: int
    wall_s: float


def read_reports(path: Path) -> list[Report]:
    """Returns the run's reports in order of env steps.

    A run that was killed and resumed did some steps twice. The later reports of these steps
    count, because they led to the end of the run.

    Raises:
      ConfigError: the file cannot be read, or holds no report.
    """
    reports: list[Report] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(expected(str(path), "a readable file", error.strerror)) from error
    for line in lines:
        report = json.loads(line)
        while reports and reports[-1]["env_steps"] >= report["env_steps"]:
            reports.pop()
        reports.append(report)
    if not reports:
        raise ConfigError(expected(str(path), "at least one report", "none"))
    return reports


def find_crossings(reports: list[Report], thresholds: Sequence[float]) -> list[Crossing]:
    """Returns the first report at or above each threshold; those never reached are left out."""
    crossings = []
    for threshold in sorted(thresholds):
        for report in reports:
            if _is_over_100_games(report) and report[RETURN] >= threshold:
                crossings.append(Crossing(threshold, report["env_steps"], report["wall_s"]))
                break
    return crossings


def _is_over_100_games(report: Report) -> bool:
    """Tells whether a report's mean is over 100 games; at first it is over fewer."""
    return report.get(RETURN) is not None and report.get("episodes", 0) >= 100


def summarise(run: Path, reports: list[Report], thresholds: Sequence[float]) -> dict[str, Any]:
    """Returns the object of docs/results/<name>.json."""
    config = load_config(RunDir(run).config)
    provenance = load_provenance(RunDir(run).config)
    last = reports[-1]
    written = datetime.datetime.fromtimestamp(os.path.getmtime(RunDir(run).metrics), datetime.UTC)
    returns = [report[RETURN] for report in reports if _is_over_100_games(report)]
    return {
        "command": provenance.get("command"),
        "date": written.date().isoformat(),
        "hardware": describe_hardware(),
        "git_commit": provenance.get("git_commit"),
        "versions": provenance.get("versions"),
        "preset": provenance.get("name"),
        "env_id": config.env.env_id,
        "rng_seeds": [config.rng_seed],
        "return_mean_100": returns[-1] if returns else None,
        "return_mean_100_best": max(returns, default=None),
        "episodes": last.get("episodes"),
        "env_steps": last["env_steps"],
        "env_frames": last["env_steps"] * config.env.frames_per_step,
        "wall_s": last["wall_s"],
        "env_steps_per_s": last["env_steps"] / last["wall_s"],
        "crossings": [crossing._asdict() for crossing in find_crossings(reports, thresholds)],
    }


def read_evaluation(path: Path, *names: str) -> dict[str, Any]:
    """Returns the fields `names` of a file that holds the output of `seed eval --json`.

    Raises:
      ConfigError: the file cannot be read, or lacks a field.
    """
    try:
        evaluation = json.loads(path.read_text(encoding="utf-8"))
        return {name: evaluation[name] for name in names}
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(expected(str(path), "what seed eval --json prints", error)) from error


def plot(reports: list[Report], summary: dict[str, Any], path: Path) -> None:
    """Draws return and speed against env steps."""
    figure = Figure(figsize=(8, 5), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    figure.suptitle(f"{summary['env_id']}, {summary['preset']}, seed {summary['rng_seeds'][0]}")
    upper.plot(*series(reports, RETURN), color="tab:blue", label="mean of the last 100 games")
    for crossing in summary["crossings"]:
        minutes = crossing["wall_s"] / 60
        upper.plot(crossing["env_steps"], crossing["return_mean_100"], "o", color="tab:orange")
        upper.annotate(
            f"{crossing['return_mean_100']:g} at {crossing['env_steps'] / 1e6:.2f}M, "
            f"{minutes:.0f} min",
            (crossing["env_steps"], crossing["return_mean_100"]),
            xytext=(8, -4),
            textcoords="offset points",
            fontsize=8,
            verticalalignment="top",
        )
    upper.set_ylabel("raw return, full games")
    upper.legend(loc="lower right", frameon=False)
    lower.plot(*series(reports, SPEED), color="tab:green", linewidth=0.8)
    lower.set_ylabel("env steps/s")
    lower.set_ylim(bottom=0)
    lower.set_xlabel(f"env steps (one is {summary['env_frames'] // summary['env_steps']} frames)")
    lower.xaxis.set_major_formatter(EngFormatter())
    for axes in (upper, lower):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def series(reports: list[Report], name: str) -> tuple[list[int], list[float]]:
    """Returns the env steps at which `name` was reported, and its values."""
    present = [report for report in reports if report.get(name) is not None]
    return [report["env_steps"] for report in present], [report[name] for report in present]


def write_evidence(
    summary: dict[str, Any], draw: Callable[[Path], None], *, out: Path, name: str
) -> None:
    """Writes `summary` as `out`/<name>.json, prints it, and lets `draw` write <name>.png."""
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(summary, indent=2)
    (out / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    draw(out / f"{name}.png")
    print(text)


@exits_on_error("results")
def main(argv: Sequence[str]) -> int:
    """Writes the JSON and the plot; returns the exit code."""
    args = tyro.cli(ResultsArgs, prog="python tools/results.py", args=argv)
    reports = read_reports(RunDir(args.run).metrics)
    summary = summarise(args.run, reports, args.thresholds)
    summary["command"] = args.command or summary["command"]
    if args.evaluation is not None:
        summary |= read_evaluation(args.evaluation, "eval_return_mean", "eval_episodes")
    draw = functools.partial(plot, reports, summary)
    write_evidence(summary, draw, out=args.out, name=args.name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
