"""`seed bench`: the speed of each part on this machine, and how near a run comes to it.

Every part runs in a process of its own (`seed_bench.parts.env`, `seed_bench.parts.learner`) on one
thread; the run is an ordinary `seed train`. All are measured in turn on one machine: their ratio
rates the system, not the machine.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from seed.command_line import parse
from seed.cores import usable_cores
from seed.errors import require
from seed.help_page import Page
from seed.provenance import evidence_header
from seed.stdout import print_json
from seed_bench.bench_case import (
    CASES,
    DEFAULT_CASES,
    PARTS,
    REPORT_EVERY_S,
    measure_case,
    say,
)
from seed_bench.in_flight import advice
from seed_bench.processes import flags_of, run_module

# `seed_bench.parts.learner replay` inserts this many together.
_MIN_SEQUENCES = 64

# Name of a result -> policy of `seed_bench.parts.learner wire`.
_WIRE_POLICIES = {"wire": "null", "wire_store": "store"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchArgs:
    """Ceilings of this machine, and how near runs come to them."""

    cases: tuple[str, ...] = DEFAULT_CASES
    """End-to-end runs to measure, of pong-shallow, pong-shallow-once, pong-nature-once,
    pong-r2d2 and catch."""
    wire_envs: tuple[int, ...] = (1, 8, 32, 64, 128)
    """Environments in a message, for the cost of the wire alone."""
    replay_sequences: int = 1000
    """Sequences held, of the atari-r2d2 preset's 100,000, for the cost of replay alone."""
    rounds: int = 3
    """Times that each run and its parts are measured, in turn."""
    seconds: float = 15.0
    """Seconds of each run that are measured, after its start."""
    part_seconds: float = 4.0
    """Seconds of each part, measured alone."""
    json: bool = False
    """Print one JSON object and nothing else on stdout."""

    def __post_init__(self) -> None:
        for case in self.cases:
            require(case in CASES, "cases", f"of {', '.join(CASES)}", case)
        smallest = min(self.wire_envs, default=1)
        require(smallest >= 1, "wire_envs", "sizes of at least 1", self.wire_envs)
        wanted = f"at least {_MIN_SEQUENCES}"
        require(
            self.replay_sequences >= _MIN_SEQUENCES,
            "replay_sequences",
            wanted,
            self.replay_sequences,
        )
        require(self.rounds >= 1, "rounds", "at least 1", self.rounds)
        require(self.seconds >= REPORT_EVERY_S, "seconds", "at least 1", self.seconds)
        require(self.part_seconds > 0, "part_seconds", "above 0", self.part_seconds)


def main(argv: Sequence[str]) -> int:
    """Measures and prints; returns the exit code."""
    args = parse(BenchArgs, argv, prog="seed bench", page=Page(usage="seed bench [flags]"))
    results: dict[str, Any] = evidence_header(" ".join(["seed", "bench", *argv]))
    results["cores"] = usable_cores()
    for name, policy in _WIRE_POLICIES.items():
        results[name] = {str(size): _measure_wire(size, policy, args) for size in args.wire_envs}
    say("replay")
    replay = flags_of({"sequences": args.replay_sequences})
    results["replay"] = run_module(["seed_bench.parts.learner", "replay", *replay])
    for case in args.cases:
        results[case] = measure_case(
            case, rounds=args.rounds, seconds=args.seconds, part_seconds=args.part_seconds
        )
    if args.json:
        print_json(results)
    else:
        print(render(results))
    return 0


def _measure_wire(envs_per_group: int, policy: str, args: BenchArgs) -> dict[str, float]:
    say(f"wire, policy {policy}: {envs_per_group} environments a message")
    flags = {"policy": policy, "envs-per-group": envs_per_group, "seconds": args.part_seconds}
    return run_module(["seed_bench.parts.learner", "wire", *flags_of(flags)])


def render(results: dict[str, Any]) -> str:
    """Returns the results as text."""
    lines = [f"hardware: {results['hardware']}", ""]
    for name, kept in (("wire", "nothing kept"), ("wire_store", "slot state and unrolls kept")):
        lines.append(f"wire, null environment, {kept}, uint8 [84, 84], CPU us per env step")
        lines.append(f"  {'envs/message':>12} {'learner':>8} {'actor':>8} {'env steps/s':>12}")
        for size, wire in results[name].items():
            costs = f"{wire['server'] * 1e6:8.1f} {wire['actor'] * 1e6:8.1f}"
            lines.append(f"  {size:>12} {costs} {wire['env_steps_per_s']:12,.0f}")
    replay = results["replay"]
    lines += [
        "",
        "replay, sequences of 121 Atari rows, in batches of 64, CPU us each: "
        f"inserting {replay['insert_s_per_sequence'] * 1e6:.0f}, "
        f"sampling {replay['sample_s_per_sequence'] * 1e6:.0f}; "
        f"{replay['bytes_per_sequence'] / 1000:.0f} kB by calculation, "
        f"{replay['resident_bytes_per_sequence'] / 1000:.0f} kB measured",
    ]
    for name in CASES:
        if name in results:
            lines += ["", *_render_case(name, results[name])]
    return "\n".join(lines)


def _render_case(name: str, case: dict[str, Any]) -> list[str]:
    parts = ", ".join(f"{part} {case[f'{part}_s_per_step'] * 1e6:.0f}" for part in PARTS)
    rounds = ", ".join(f"{fraction:.2f}" for fraction in case["fractions"])
    shares = ", ".join(
        f"{metric.removeprefix('time/').removesuffix('_share')} {share:.0%}"
        for metric, share in case["time_shares"].items()
        if share >= 0.01
    )
    return [
        f"{name}: {case['command']}",
        f"  one thread, us per env step: {parts} (batches of {case['batch_size_mean']})",
        f"  CPU-bound optimum {case['optimum_env_steps_per_s']:,.0f} env steps/s",
        f"  end to end        {case['env_steps_per_s']:,.0f} env steps/s"
        f" = {case['fraction_of_optimum']:.2f} of it (rounds: {rounds})",
        f"  time: {shares}",
        f"  {case['verdict']}",
        f"  {_far_away(case)}",
    ]


def _far_away(case: dict[str, Any]) -> str:
    """Returns how many environments the run would need if its actors were far away."""
    return advice(
        case["env_steps_per_s"],
        group_s=case["env_s_per_step"] * case["envs_per_group"],
        learner_s=case["inference_ms_p50"] / 1000,
    )
