"""Draws docs/results/scale.png from what `seed load --json` printed.

    python tools/plot_scale.py docs/results/scale.json

Throughput, latency, CPU cost and memory against environments, one line a series.
"""

import json
import sys
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from seed_bench.load import SERIES

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


def plot(results: dict[str, Any], path: Path) -> None:
    """Draws every series of `results` into `path`."""
    figure = Figure(figsize=(10, 7), layout="constrained")
    figure.suptitle(f"One learner under simulated actors: {results['hardware']}")
    panels = figure.subplots(2, 2).flat
    for axes, (title, lines) in zip(panels, PANELS.items(), strict=True):
        _draw_panel(axes, title, lines, results)
    figure.savefig(path, dpi=120)


def _draw_panel(
    axes: Axes, title: str, lines: list[tuple[str, float, str]], results: dict[str, Any]
) -> None:
    for index, name in enumerate(name for name in SERIES if name in results):
        envs = [point["num_envs"] for point in results[name]]
        for field, factor, style in lines:
            values = [point[field] * factor for point in results[name]]
            label = name if style == "-" else None
            axes.loglog(envs, values, style, color=f"C{index}", marker=".", label=label)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("environments")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(EngFormatter())
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8)


def main(arguments: list[str]) -> int:
    """Writes the plot beside the JSON; returns the exit code."""
    if len(arguments) != 1:
        print("usage: python tools/plot_scale.py SCALE.json", file=sys.stderr)
        return 2
    path = Path(arguments[0])
    plot(json.loads(path.read_text(encoding="utf-8")), path.with_suffix(".png"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
