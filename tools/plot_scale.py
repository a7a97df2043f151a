"""Draws docs/results/scale.png from the output of `seed load --json`.

    python tools/plot_scale.py docs/results/scale.json

Throughput, latency, CPU cost and memory against environments, one line for each series.
"""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tyro
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from seed.errors import ConfigError, exits_on_error, expected

# Title of a panel -> field, factor, format of the line.
PANELS = {
    "env steps/s": [("env_steps_per_s", 1.0, "-")],
    "round trip, ms: median, 99th percentile dashed": [
        ("round_trip_ms_p50", 1.0, "-"),
        ("round_trip_ms_p99", 1.0, "--"),
    ],
    "CPU us per env step: learner, generator dashed": [
        ("learner_cpu_s_per_step", 1e6, "-"),
        ("generator_cpu_s_per_step", 1e6, "--"),
    ],
    "learner's memory, kB per environment": [("learner_bytes_per_env", 1e-3, "-")],
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlotArgs:
    """Draws a plot of a learner's load beside the JSON file of its results."""

    results: tyro.conf.Positional[Path]
    """JSON file with the output of `seed load --json`."""


def plot(results: dict[str, Any], path: Path) -> None:
    """Draws every series of `results` into `path`.

    Args:
      results: hardware, and for the name of each series a list of its points.
      path: file of the picture.
    """
    series = {name: points for name, points in results.items() if isinstance(points, list)}
    figure = Figure(figsize=(10, 7), layout="constrained")
    figure.suptitle(f"One learner under simulated actors: {results['hardware']}")
    panels = figure.subplots(2, 2).flat
    for axes, (title, lines) in zip(panels, PANELS.items(), strict=True):
        _draw_panel(axes, title, lines, series)
    figure.savefig(path, dpi=120)


def _draw_panel(
    axes: Axes,
    title: str,
    lines: list[tuple[str, float, str]],
    series: dict[str, list[dict[str, float]]],
) -> None:
    for index, (name, points) in enumerate(series.items()):
        envs = [point["num_envs"] for point in points]
        for field, factor, style in lines:
            values = [point[field] * factor for point in points]
            label = name if style == "-" else None
            axes.loglog(envs, values, style, color=f"C{index}", marker=".", label=label)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("environments")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(EngFormatter())
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8)


@exits_on_error("plot_scale")
def main(argv: Sequence[str]) -> int:
    """Writes the plot beside the JSON; returns the exit code."""
    path = tyro.cli(PlotArgs, prog="python tools/plot_scale.py", args=argv).results
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(expected(str(path), "what seed load --json prints", error)) from error
    plot(results, path.with_suffix(".png"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
