"""Prints how many cores a fleet needs, from the costs in docs/results/bench.json and scale.json.

    python tools/sizing.py          # the table of docs/sizing.md

The costs are those of the measured machine. For a fleet of other machines, run `seed bench
--json` and `seed load --json` on one of them and name the files with --bench and --scale.
"""

import dataclasses
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tyro

from seed.errors import ConfigError, exits_on_error, expected

TARGET_FRAMES_PER_S = (10_000, 100_000, 1_000_000)
FRAMES_PER_STEP = 4  # of Atari
BYTES_PER_STEP = 7_070  # both ways, 32 environments a message: tools/wire_bytes.py at 8860f5a
ENVS_PER_MESSAGE = "32"
# Network -> case of `seed bench` that trains it once on each sample.
NETWORKS = {"shallow": "pong-shallow-once", "Nature": "pong-nature-once"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SizingArgs:
    """Prints how many cores a fleet needs, from measured costs."""

    bench: Path = Path("docs/results/bench.json")
    """File with the output of `seed bench --json`."""
    scale: Path = Path("docs/results/scale.json")
    """File with the output of `seed load --json`."""


class Costs(NamedTuple):
    """CPU seconds per env step, and the rate that one learner process can serve."""

    env: float
    actor_wire: float
    learner_wire: float
    """Includes batching, slot state and unrolls."""
    steps_per_s_served: float
    """Rate of one learner process on one core, without a network."""
    network: dict[str, tuple[float, float]]
    """Network -> (forward, train), on one core's thread."""


class Fleet(NamedTuple):
    """What a fleet needs for one rate of env steps."""

    steps_per_s: float
    actor_cores: float
    serving_cores: float
    """Cores of the learners for wire, batching and unrolls, without the network."""
    learner_processes: int
    megabytes_per_s: float
    network_cores: dict[str, float]
    """Network -> cores for forward passes and training without a GPU."""


def read_costs(bench: dict[str, Any], scale: dict[str, Any]) -> Costs:
    """Returns the costs in the output of `seed bench` and `seed load`.

    Raises:
      ConfigError: a result is missing, for example because only some cases were measured.
    """
    try:
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
    except KeyError as error:
        wanted = f"results of {', '.join(NETWORKS.values())}, wire_store and store"
        raise ConfigError(expected("bench, scale", wanted, f"none of {error}")) from error


def size_fleet(frames_per_s: float, costs: Costs) -> Fleet:
    """Returns what a fleet needs for a rate of Atari frames."""
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


def _read(path: Path, command: str) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(expected(str(path), f"what {command} prints", error)) from error


@exits_on_error("sizing")
def main(argv: Sequence[str]) -> int:
    """Prints the table; returns the exit code."""
    args = tyro.cli(SizingArgs, prog="python tools/sizing.py", args=argv)
    bench, scale = _read(args.bench, "seed bench --json"), _read(args.scale, "seed load --json")
    print(render(read_costs(bench, scale)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
