"""`seed bench`: what this machine can do, part by part, and how near a run comes.

Every part runs in a process of its own (`actors.bench`, `learner.bench`), one
thread each; the run is an ordinary `seed train`. All in one go on one machine, so
that what is reported is a ratio and not a clock speed.
"""

import dataclasses
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tyro

from seed.config_file import env_settings_to_json, load_config
from seed.errors import SeedError, require

_ONE_PASS = (
    *("--sample-reuse", "1", "--batch-size", "32", "--queue-batches", "1"),
    *("--envs-per-group", "64"),
)

# End-to-end cases: name -> command line of `seed train`.
CASES: dict[str, tuple[str, ...]] = {
    # The preset as it is, every unroll trained on twice.
    "pong-shallow": ("atari-vtrace-cpu",),
    # One pass over each sample in IMPALA's batches of 32 unrolls, as other systems are
    # usually measured; enough environments that a batch is ready whenever one is wanted.
    "pong-shallow-once": ("atari-vtrace-cpu", *_ONE_PASS),
    "pong-nature-once": ("atari-vtrace-cpu", "--torso", "nature", *_ONE_PASS),
    # Small enough for a test: the transport is the bound.
    "catch": ("catch-vtrace",),
}
DEFAULT_CASES = ("pong-shallow", "pong-shallow-once", "pong-nature-once")

_REPORT_EVERY_S = 1.0
_ENDLESS = 10**12  # env steps; the run is ended when enough has been seen
# Reports skipped after the first update: queues and caches are still filling.
_WARM_UP_REPORTS = 5
# Longest that an actor may take to make its environments.
_START_TIMEOUT_S = 120.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchArgs:
    """Ceilings of this machine, and where runs stand against them."""

    cases: tuple[str, ...] = DEFAULT_CASES
    """End-to-end runs to measure, of pong-shallow, pong-shallow-once, pong-nature-once
    and catch."""
    wire_envs: tuple[int, ...] = (1, 8, 32, 64, 128)
    """Environments in a message, for the cost of the wire alone."""
    replay_sequences: int = 1000
    """Sequences held, of the atari-r2d2 preset's 100,000, for the cost of replay alone."""
    seconds: float = 30.0
    """Seconds of each run that count, after its start."""
    part_seconds: float = 4.0
    """Seconds for each part by itself."""
    json: bool = False
    """Print one JSON object on stdout, and nothing else there."""

    def __post_init__(self) -> None:
        for case in self.cases:
            require(case in CASES, "cases", f"of {', '.join(CASES)}", case)
        require(self.replay_sequences >= 1, "replay_sequences", "at least 1", self.replay_sequences)
        require(self.seconds >= _REPORT_EVERY_S, "seconds", "at least 1", self.seconds)
        require(self.part_seconds > 0, "part_seconds", "above 0", self.part_seconds)


class Run(NamedTuple):
    """What a run reached once it had warmed up."""

    env_steps_per_s: float
    batch_size: int
    """Environments in a forward pass, rounded mean."""
    time_shares: dict[str, float]
    """Metric name -> share of the last report, for `time/*_share`."""


def main(argv: Sequence[str]) -> int:
    """Measures and prints; returns the exit code."""
    args = tyro.cli(BenchArgs, prog="seed bench", args=list(argv))
    results: dict[str, Any] = {"hardware": _hardware(), "cores": _num_cores()}
    results["wire"] = {str(size): _measure_wire(size, args) for size in args.wire_envs}
    _say("replay")
    replay = ["learner.bench", "replay", "--sequences", str(args.replay_sequences)]
    results["replay"] = _run_module(replay)
    for case in args.cases:
        results[case] = measure_case(case, args)
    print(json.dumps(results) if args.json else render(results))
    return 0


def measure_case(name: str, args: BenchArgs) -> dict[str, Any]:
    """Runs one case end to end, and its parts by themselves before and after."""
    with tempfile.TemporaryDirectory(prefix="seed-bench-") as directory:
        run_dir = Path(directory) / "run"
        _say(f"{name}: end to end for {args.seconds:g} s")
        run = _measure_run(CASES[name], run_dir, args.seconds)
        _say(f"{name}: {run.env_steps_per_s:,.0f} env steps/s; now its parts")
        parts = _measure_parts(run_dir, run.batch_size, args.part_seconds)
    seconds_per_step = sum(parts.values())
    optimum = _num_cores() / seconds_per_step
    return {
        "command": "seed train " + " ".join(CASES[name]),
        "env_steps_per_s": run.env_steps_per_s,
        "optimum_env_steps_per_s": optimum,
        "fraction_of_optimum": run.env_steps_per_s / optimum,
        "batch_size_mean": run.batch_size,
        "env_s_per_step": parts["env"],
        "forward_s_per_step": parts["forward"],
        "train_s_per_step": parts["train"],
        "time_shares": run.time_shares,
    }


def _measure_run(command: Sequence[str], run_dir: Path, seconds: float) -> Run:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "seed.cli", "train", *command),
            *("--run-dir", str(run_dir), "--report-every-s", str(_REPORT_EVERY_S), "--json"),
            *("--total-env-steps", str(_ENDLESS)),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        reports = _collect_reports(process, run_dir / "metrics.jsonl", seconds)
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    if process.returncode:
        raise SeedError(f"the run ended with code {process.returncode}:\n{errors}")
    first, last = reports[0], reports[-1]
    steps = last["env_steps"] - first["env_steps"]
    return Run(
        env_steps_per_s=steps / (last["wall_s"] - first["wall_s"]),
        batch_size=round(last["inference/batch_size_mean"]),
        time_shares={k: v for k, v in last.items() if k.startswith("time/")},
    )


def _collect_reports(
    process: subprocess.Popen[str], metrics: Path, seconds: float
) -> list[dict[str, float]]:
    """Returns the reports of `seconds` after the warm-up."""
    wanted = int(seconds / _REPORT_EVERY_S) + 1
    give_up_at = time.monotonic() + _START_TIMEOUT_S + 2 * seconds
    while process.poll() is None and time.monotonic() < give_up_at:
        time.sleep(_REPORT_EVERY_S)
        lines = metrics.read_text().splitlines() if metrics.exists() else []
        reports = [json.loads(line) for line in lines]
        learning = [report for report in reports if report["learner_steps"] > 0]
        if len(learning) >= _WARM_UP_REPORTS + wanted:
            return learning[_WARM_UP_REPORTS:]
    raise SeedError(f"the run did not make {wanted} reports in time")


def _measure_parts(run_dir: Path, batch_size: int, seconds: float) -> dict[str, float]:
    """Returns the best CPU seconds per env step of each part, on one thread.

    Twice in turn: a slow spell of the machine should not decide.
    """
    config = load_config(run_dir / "config.yaml")
    env = [
        *("actors.bench", "--json", "--env-id", config.env.env_id),
        *("--env-settings", env_settings_to_json(config.env)),
        *("--num-envs", str(config.actor.envs_per_group), "--seconds", str(seconds)),
    ]
    run = ("--run", str(run_dir), "--seconds", str(seconds))
    forward = ["learner.bench", "forward", *run, "--batch-sizes", str(batch_size)]
    train = ["learner.bench", "train", *run]
    rounds = [
        {
            "env": _run_module(env)["env_cpu_s_per_step"],
            "forward": _run_module(forward)[str(batch_size)],
            "train": _run_module(train)["train"],
        }
        for _ in range(2)
    ]
    return {part: min(costs[part] for costs in rounds) for part in rounds[0]}


def _measure_wire(envs_per_group: int, args: BenchArgs) -> dict[str, float]:
    _say(f"wire: {envs_per_group} environments a message")
    seconds = str(args.part_seconds)
    return _run_module(
        ["learner.bench", "wire", "--envs-per-group", str(envs_per_group), "--seconds", seconds]
    )


def _run_module(command: Sequence[str]) -> dict[str, float]:
    """Returns the JSON object that `python -m <command>` prints."""
    done = subprocess.run(
        [sys.executable, "-m", *command],
        capture_output=True,
        text=True,
        # One thread for each part, whatever the libraries would choose.
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    if done.returncode:
        raise SeedError(f"python -m {' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def _num_cores() -> int:
    return len(os.sched_getaffinity(0))


def _hardware() -> str:
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [x.split(":")[1] for x in cpuinfo.read_text().splitlines() if "model name" in x]
        model = names[0].strip() if names else model
    return f"{model}, {_num_cores()} cores"


def _say(message: str) -> None:
    print(f"bench: {message}", file=sys.stderr)


def render(results: dict[str, Any]) -> str:
    """Returns the results as text."""
    lines = [f"hardware: {results['hardware']}", ""]
    lines.append("wire, null environment and null policy, uint8 [84, 84], CPU us per env step")
    lines.append(f"  {'envs/message':>12} {'learner':>8} {'actor':>8} {'env steps/s':>12}")
    for size, wire in results["wire"].items():
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
    parts = ", ".join(
        f"{part} {case[f'{part}_s_per_step'] * 1e6:.0f}" for part in ("env", "forward", "train")
    )
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
        f" = {case['fraction_of_optimum']:.2f} of it",
        f"  time: {shares}",
    ]
