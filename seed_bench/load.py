"""`seed load`: throughput, latency, cost and memory of a learner against environments.

Every point is a learner and a generator of actors in processes of their own
(`parts.loaded_learner`, `parts.simulated_actors`), which share this machine. One call measures all
points, so that they can be compared.
"""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from seed.command_line import parse
from seed.cores import usable_cores
from seed.errors import require
from seed.help_page import Page
from seed.provenance import evidence_header
from seed.stdout import print_json
from seed_bench.in_flight import advice
from seed_bench.processes import flags_of, run_module

# Microseconds of one step of Pong on the machine of docs/results/bench.json.
PONG_STEP_US = 300.0

# The values of the Atari presets.
MAX_ENVS_PER_MESSAGE = 32
GROUPS_PER_ACTOR = 2


class Series(NamedTuple):
    """One curve of the results."""

    policy: str
    """Policy of `seed_bench.parts.loaded_learner`."""
    step_us: float
    """Simulated microseconds of one environment's step; 0: as fast as the learner answers."""


SERIES = {
    "wire": Series("null", 0.0),
    "store": Series("store", 0.0),
    "store-pong-actors": Series("store", PONG_STEP_US),
    "shallow-pong-actors": Series("impala_shallow", PONG_STEP_US),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadArgs:
    """A learner's throughput, latency, cost and memory against environments."""

    envs: tuple[int, ...] = (1, 4, 16, 64, 256, 1024, 4096)
    """Numbers of environments, one for each point: 32 in a message and 64 on a stream (an actor),
    or fewer if there are fewer."""
    series: tuple[str, ...] = tuple(SERIES)
    """Curves. wire (null policy) and store (slot state and unrolls, null policy) step as fast as
    the learner answers. In store-pong-actors and shallow-pong-actors (IMPALA's shallow network)
    each actor is a core that takes 300 us for a step."""
    seconds: float = 4.0
    """Seconds measured at each point, after about 5 s of start and warm-up."""
    json: bool = False
    """Print one JSON object and nothing else on stdout."""

    def __post_init__(self) -> None:
        for name in self.series:
            require(name in SERIES, "series", f"of {', '.join(SERIES)}", name)
        for num_envs in self.envs:
            sizes = "1, or a multiple of 2; above 64, of 64"
            fits = num_envs == 1 or num_envs % (2 if num_envs < 64 else 64) == 0
            require(num_envs >= 1 and fits, "envs", sizes, num_envs)
        require(self.seconds > 0, "seconds", "above 0", self.seconds)


def shape(num_envs: int) -> tuple[int, int, int]:
    """Returns (streams, groups of each, environments of each group)."""
    if num_envs == 1:
        return 1, 1, 1
    per_group = min(MAX_ENVS_PER_MESSAGE, num_envs // GROUPS_PER_ACTOR)
    return num_envs // (GROUPS_PER_ACTOR * per_group), GROUPS_PER_ACTOR, per_group


def measure_point(series: Series, num_envs: int, seconds: float) -> dict[str, float]:
    """Returns what `seed_bench.parts.loaded_learner` reports of one point."""
    num_streams, num_groups, envs_per_group = shape(num_envs)
    flags = {
        "policy": series.policy,
        "step-us": series.step_us,
        "num-streams": num_streams,
        "num-groups": num_groups,
        "envs-per-group": envs_per_group,
        "seconds": seconds,
    }
    return run_module(["seed_bench.parts.loaded_learner", *flags_of(flags)])


def main(argv: Sequence[str]) -> int:
    """Measures and prints; returns the exit code."""
    args = parse(LoadArgs, argv, prog="seed load", page=Page(usage="seed load [flags]"))
    results: dict[str, Any] = evidence_header(" ".join(["seed", "load", *argv]))
    results["cores"] = usable_cores()
    for name in args.series:
        points = []
        for num_envs in args.envs:
            print(f"load: {name}, {num_envs} environments", file=sys.stderr)
            points.append(measure_point(SERIES[name], num_envs, args.seconds))
        results[name] = points
    if args.json:
        print_json(results, indent=2)
    else:
        print(render(results))
    return 0


_COLUMNS = (
    ("envs", "num_envs", 1, "{:,.0f}"),
    ("streams", "num_streams", 1, "{:.0f}"),
    ("steps/s", "env_steps_per_s", 1, "{:,.0f}"),
    ("batch", "batch_size_mean", 1, "{:.0f}"),
    ("inference p50", "inference_ms_p50", 1, "{:.2f}"),
    ("p99 ms", "inference_ms_p99", 1, "{:.2f}"),
    ("p99/forward", "p99_over_forward", 1, "{:.1f}"),
    ("round trip p50", "round_trip_ms_p50", 1, "{:.2f}"),
    ("p99 ms", "round_trip_ms_p99", 1, "{:.2f}"),
    ("learner us", "learner_cpu_s_per_step", 1e6, "{:.1f}"),
    ("generator us", "generator_cpu_s_per_step", 1e6, "{:.1f}"),
    ("kB/env", "learner_bytes_per_env", 1e-3, "{:.0f}"),
)


def render(results: dict[str, Any]) -> str:
    """Returns the results as text; costs are of CPU, per env step."""
    lines = [f"hardware: {results['hardware']}"]
    for name, series in SERIES.items():
        if name not in results:
            continue
        lines += ["", f"{name}: policy {series.policy}, a step takes {series.step_us:g} us"]
        lines.append("  ".join(title for title, *_ in _COLUMNS))
        for point in results[name]:
            cells = [
                form.format(point[field] * unit).rjust(len(title))
                for title, field, unit, form in _COLUMNS
            ]
            lines.append("  ".join(cells))
        lines.append(_far_away(series, results[name]))
    return "\n".join(lines)


def _far_away(series: Series, points: Sequence[dict[str, float]]) -> str:
    """Returns how many environments the fastest point would need if its actors were far away."""
    fastest = max(points, key=lambda point: point["env_steps_per_s"])
    return advice(
        fastest["env_steps_per_s"],
        group_s=1e-6 * series.step_us * fastest["envs_per_message"],
        learner_s=fastest["inference_ms_p50"] / 1000,
    )
