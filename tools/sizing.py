"""Prints what fleets take, reckoned from docs/results/bench.json and scale.json.

    python tools/sizing.py          # the tables of docs/sizing.md

Costs are of the machine that measured; another's cores differ, so whoever sizes a fleet
runs `seed bench --json` and `seed load --json` on its machines and names the files.
"""

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any, NamedTuple

TARGET_FRAMES_PER_S = (10_000, 100_000, 1_000_000)
FRAMES_PER_STEP = 4  # of Atari
BYTES_PER_STEP = 7_070  # both ways, 32 environments a message: tools/wire_bytes.py at 8860f5a
ENVS_PER_MESSAGE = "32"
# Network -> case of `seed bench` that trains it once on each sample.
NETWORKS = {"shallow": "pong-shallow-once", "Nature": "pong-nature-once"}


class Costs(NamedTuple):
    """CPU seconds per env step, and what one learner process could serve."""

    env: float
    actor_wire: float
    learner_wire: float
    """Batching, slot state and unrolls included."""
    steps_per_s_served: float
    """By one learner process on one core, without a network."""
    network: dict[str, tuple[float, float]]
    """Network -> (forward, train), on one core's thread."""


class Fleet(NamedTuple):
    """What a rate takes."""

    steps_per_s: float
    actor_cores: float
    serving_cores: float
    """At the learners, for wire, batching and unrolls; the network comes on top."""
    learner_processes: int
    megabytes_per_s: float
    network_cores: dict[str, float]
    """Network -> cores for forward and training where there is no GPU."""


def read_costs(bench: dict[str, Any], scale: dict[str, Any]) -> Costs:
    """Returns the costs that the two results tell."""
    wire = bench["wire_store"][ENVS_PER_MESSAGE]
    return Costs(
        env=bench[NETWORKS["shallow"]]["env_s_per_step"],
        actor_wire=wire["actor"],
        learner_wire=wire["server"],
        steps_per_s_served=max(point["env_steps_per_s"] for point in scale["store"]),
        network={
            name: (bench[case]["forward_s_per_step"], bench[case]["train_s_per_step"])
            for name, case in NETWORKS.items()
        },
    )


def size_fleet(frames_per_s: float, costs: Costs) -> Fleet:
    """Returns what `frames_per_s` of Atari take."""
    steps_per_s = frames_per_s / FRAMES_PER_STEP
    return Fleet(
        steps_per_s=steps_per_s,
        actor_cores=steps_per_s * (costs.env + costs.actor_wire),
        serving_cores=steps_per_s * costs.learner_wire,
        learner_processes=math.ceil(steps_per_s / costs.steps_per_s_served),
        megabytes_per_s=steps_per_s * BYTES_PER_STEP / 1e6,
        network_cores={name: steps_per_s * sum(each) for name, each in costs.network.items()},
    )


def render(costs: Costs) -> str:
    """Returns the table in Markdown."""
    names = list(costs.network)
    titles = ["frames/s", "env steps/s", "actor cores", "serving cores", "learner processes"]
    titles.append("MB/s")
    titles += [f"{name} net on CPUs: cores" for name in names]
    lines = ["| " + " | ".join(titles) + " |", "| " + " | ".join(["---:"] * len(titles)) + " |"]
    for frames_per_s in TARGET_FRAMES_PER_S:
        fleet = size_fleet(frames_per_s, costs)
        cells = [
            f"{frames_per_s:,}",
            f"{fleet.steps_per_s:,.0f}",
            f"{fleet.actor_cores:,.1f}",
            f"{fleet.serving_cores:,.1f}",
            f"{fleet.learner_processes}",
            f"{fleet.megabytes_per_s:,.0f}",
            *(f"{fleet.network_cores[name]:,.1f}" for name in names),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Prints the table; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bench", type=Path, default=Path("docs/results/bench.json"))
    parser.add_argument("--scale", type=Path, default=Path("docs/results/scale.json"))
    options = parser.parse_args(arguments)
    bench, scale = (json.loads(path.read_text()) for path in (options.bench, options.scale))
    print(render(read_costs(bench, scale)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
