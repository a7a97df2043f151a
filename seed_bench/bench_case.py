"""One case of `seed bench`: a whole run and its parts, measured in turn.

The run is an ordinary `seed train`, every part a process of its own (`seed_bench.parts.env`,
`seed_bench.parts.learner`) with one thread. A machine's speed drifts by the minute: each run is
compared with the parts measured just before and after it, and the result is the middle one of
several such rounds.
"""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from learner.config.config_file import load_config
from learner.config.run_config import RunConfig
from learner.config.run_dir import RunDir
from learner.reporting.verdict import verdict
from seed.cores import usable_cores
from seed.env_config import env_settings_to_json
from seed.errors import SeedError
from seed.search_path import python_module
from seed_bench.processes import flags_of, reports_so_far, run_module

_ONE_PASS = (
    *("--sample-reuse", "1", "--batch-size", "32", "--queue-batches", "1"),
    *("--num-actors", "2"),
)

# End-to-end cases: name -> command line of `seed train`.
CASES: dict[str, tuple[str, ...]] = {
    # The preset as it is: every unroll is trained on twice.
    "pong-shallow": ("atari-vtrace-cpu",),
    # One pass over each sample in IMPALA's batches of 32 unrolls, as other systems are usually
    # measured. There are enough environments that a batch is always ready, in groups so large
    # that the cost of each message counts for little: 512 here, 256 below.
    "pong-shallow-once": ("atari-vtrace-cpu", *_ONE_PASS, "--envs-per-group", "128"),
    # An update is more than half of the work, so one of two cores is too little for it. And
    # while inference works on all environments at once, none of them can use the other core.
    "pong-nature-once": (
        *("atari-vtrace-cpu", "--torso", "nature", *_ONE_PASS),
        *("--envs-per-group", "64", "--train-threads", "2", "--max-inference-batch", "64"),
    ),
    # The R2D2 preset, with as many samples an insert as keep both of two cores busy. The
    # replay is not saved, as the run is never resumed.
    "pong-r2d2": ("atari-r2d2-cpu", "--no-checkpoint-replay", "--samples-per-insert", "1.25"),
    # Small enough for a test: the transport limits the speed.
    "catch": ("catch-vtrace",),
}
DEFAULT_CASES = ("pong-shallow", "pong-shallow-once", "pong-nature-once", "pong-r2d2")

REPORT_EVERY_S = 1.0
_ENDLESS = 10**12  # env steps; the run is ended when enough has been seen
# Reports skipped after the first update: queues and caches are still filling.
_WARM_UP_REPORTS = 5
# Longest that an actor may take to make its environments.
_START_TIMEOUT_S = 120.0


class Run(NamedTuple):
    """The results of a run after its warm-up."""

    env_steps_per_s: float
    batch_size: int
    """Environments in a forward pass, rounded mean."""
    time_shares: dict[str, float]
    """Metric name -> share of the last report, for `time/*_share`."""
    verdict: str
    """What limits the run's speed."""
    inference_ms: float
    """Milliseconds from a step's arrival to its answer, the median of the last report."""
    envs_per_group: int
    """Environments that an actor steps together."""


PARTS = ("env", "forward", "train")


class Round(NamedTuple):
    """One run, and the best that its parts did just before and after it."""

    run: Run
    parts: dict[str, float]
    """Part -> CPU seconds per env step."""

    @property
    def optimum(self) -> float:
        """Env steps per second if the cores did the parts alone."""
        return usable_cores() / sum(self.parts.values())

    @property
    def fraction(self) -> float:
        """The run's rate as a share of the optimum."""
        return self.run.env_steps_per_s / self.optimum


def measure_case(name: str, *, rounds: int, seconds: float, part_seconds: float) -> dict[str, Any]:
    """Returns the middle one of the rounds, and the fractions of all."""
    with tempfile.TemporaryDirectory(prefix="seed-bench-") as directory:
        measured = _measure_rounds(name, Path(directory), rounds, seconds, part_seconds)
    middle = sorted(measured, key=lambda each: each.fraction)[(rounds - 1) // 2]
    return {
        "command": "seed train " + " ".join(CASES[name]),
        "env_steps_per_s": middle.run.env_steps_per_s,
        "optimum_env_steps_per_s": middle.optimum,
        "fraction_of_optimum": middle.fraction,
        "fractions": [each.fraction for each in measured],
        "batch_size_mean": middle.run.batch_size,
        **{f"{part}_s_per_step": middle.parts[part] for part in PARTS},
        "time_shares": middle.run.time_shares,
        "verdict": middle.run.verdict,
        "inference_ms_p50": middle.run.inference_ms,
        "envs_per_group": middle.run.envs_per_group,
    }


def _measure_rounds(
    name: str, directory: Path, rounds: int, seconds: float, part_seconds: float
) -> list[Round]:
    runs: list[Run] = []
    parts: list[dict[str, float]] = []
    for number in range(rounds):
        run_dir = directory / str(number)
        say(f"{name}: end to end for {seconds:g} s, {number + 1} of {rounds}")
        runs.append(_measure_run(CASES[name], run_dir, seconds))
        say(f"{name}: {runs[-1].env_steps_per_s:,.0f} env steps/s; now its parts")
        # Measured after the run, which determines network, spec and batch size.
        parts.append(_measure_parts(run_dir, runs[-1].batch_size, part_seconds))
    # The first run has no measurement of its parts before it, only after it.
    return [
        Round(run, {part: min(before[part], after[part]) for part in PARTS})
        for run, before, after in zip(runs, [parts[0], *parts[:-1]], parts, strict=True)
    ]


def _measure_run(command: Sequence[str], run_dir: Path, seconds: float) -> Run:
    process = subprocess.Popen(
        [
            *python_module("seed.cli", "train", *command),
            *("--run-dir", str(run_dir), "--report-every-s", str(REPORT_EVERY_S), "--json"),
            *("--total-env-steps", str(_ENDLESS)),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        reports = _collect_reports(process, run_dir, seconds)
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
        verdict=verdict(last) or "nothing was trained in the last second",
        inference_ms=last["inference/latency_ms_p50"],
        envs_per_group=load_config(RunDir(run_dir).config).actor.envs_per_group,
    )


def _collect_reports(
    process: subprocess.Popen[str], run_dir: Path, seconds: float
) -> list[dict[str, float]]:
    """Returns the reports of `seconds` after the warm-up."""
    wanted = int(seconds / REPORT_EVERY_S) + 1
    give_up_at = time.monotonic() + _START_TIMEOUT_S + 2 * seconds
    while process.poll() is None and time.monotonic() < give_up_at:
        time.sleep(REPORT_EVERY_S)
        learning = [report for report in reports_so_far(run_dir) if report["learner_steps"] > 0]
        if len(learning) >= _WARM_UP_REPORTS + wanted:
            return learning[_WARM_UP_REPORTS:]
    raise SeedError(f"the run did not make {wanted} reports in time")


def _measure_parts(run_dir: Path, batch_size: int, seconds: float) -> dict[str, float]:
    """Returns the best CPU seconds per env step of each part, on one thread."""
    config = load_config(RunDir(run_dir).config)
    run = flags_of({"run": run_dir, "seconds": seconds})
    forward = ["seed_bench.parts.learner", "forward", *run, "--batch-sizes", str(batch_size)]
    return {
        "env": measure_env(config, seconds),
        "forward": run_module(forward)[str(batch_size)],
        "train": run_module(["seed_bench.parts.learner", "train", *run])["train"],
    }


def measure_env(config: RunConfig, seconds: float) -> float:
    """Returns the CPU seconds per env step of a group as the run's actors step it."""
    flags = {
        "env-id": config.env.env_id,
        "env-settings": env_settings_to_json(config.env),
        "num-envs": config.actor.envs_per_group,
        "seconds": seconds,
    }
    part = ["seed_bench.parts.env", "--json", *flags_of(flags)]
    return run_module(part)["env_cpu_s_per_step"]


def say(message: str) -> None:
    """Prints a line about the bench's progress to stderr."""
    print(f"bench: {message}", file=sys.stderr)
