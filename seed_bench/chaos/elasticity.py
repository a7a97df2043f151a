"""Actors of 1 to 4,096 environments join and leave a real learner; its memory is watched.

    python -m seed_bench.chaos.elasticity --cycles 1000 --out docs/results/elasticity.json

One actor stays throughout. The others join with some number of environments, step a few times,
and leave, by ending or by cancelling their stream. Each must leave nothing behind on the learner:
no memory, no open files, no slots.
"""

import dataclasses
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import tyro

from seed.errors import exits_on_error, require
from seed.provenance import evidence_header
from seed_bench.chaos.visitor import Visitor

MAX_ENVS = 4_096
NUM_STEPS = 2
PRESET = "cartpole-vtrace"


class Sample(NamedTuple):
    """Memory and open files of all the learner's processes after some cycles."""

    cycle: int
    rss_mib: float
    num_files: int


class LearnerUnderWatch:
    """A real learner, whose processes can be examined."""

    def __init__(self, directory: Path) -> None:
        """Starts the learner; it trains on the visitors' steps until `close`."""
        self.address = f"unix:{directory / 'learner.sock'}"
        self.run_dir = directory / "run"
        command = [
            *(sys.executable, "-m", "seed.cli", "learner", PRESET, "--listen", self.address),
            *("--run-dir", self.run_dir, "--total-env-steps", "1000000000"),
            *("--report-every-s", "1", "--env-id", "Visitors"),
        ]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def sample(self, cycle: int) -> Sample:
        """Returns what the learner and its child processes use now."""
        learner = psutil.Process(self._process.pid)
        processes = [learner, *learner.children()]
        rss_mib = sum(process.memory_info().rss for process in processes) / 2**20
        return Sample(cycle, rss_mib, sum(process.num_fds() for process in processes))

    def is_running(self) -> bool:
        """Tells whether the learner still runs."""
        return self._process.poll() is None

    def close(self) -> int:
        """Ends the learner; returns its exit code."""
        self._process.terminate()
        return self._process.wait(60)


def group_sizes(cycle: int, generator: random.Random) -> tuple[int, ...]:
    """Returns the sizes of one or two groups; cycle 0 has the largest fleet of all."""
    if cycle == 0:
        return (MAX_ENVS,)
    num_envs = round(MAX_ENVS ** generator.random())
    half = num_envs // 2
    return (num_envs - half, half) if half and generator.random() < 0.5 else (num_envs,)


def visit(learner: LearnerUnderWatch, cycle: int, generator: random.Random) -> int:
    """Joins, steps, and leaves in one of three ways; returns the number of environments."""
    sizes = group_sizes(cycle, generator)
    visitor = Visitor(learner.address, *sizes)
    visitor.play(NUM_STEPS)
    manner = generator.choice(["leaves", "vanishes", "vanishes with a step under way"])
    if manner == "leaves":
        visitor.leave()
    else:
        if manner != "vanishes":
            visitor.send(visitor.step(0))
        visitor.vanish()
    return sum(sizes)


def watch(learner: LearnerUnderWatch, num_cycles: int, rng_seed: int = 0) -> dict[str, Any]:
    """Runs the cycles; returns their results and samples."""
    generator = random.Random(rng_seed)
    samples: list[Sample] = []
    sizes: list[int] = []
    resident = Visitor(learner.address, 3, timeout_s=3_600)
    started_s = time.monotonic()
    for cycle in range(num_cycles):
        sizes.append(visit(learner, cycle, generator))
        resident.play(1)
        if (cycle + 1) % max(num_cycles // 50, 1) == 0:
            samples.append(learner.sample(cycle + 1))
    wall_s = time.monotonic() - started_s
    left_behind = envs_left_behind(learner, num_residents=3)
    resident.leave()
    return {
        "cycles": num_cycles,
        "envs_min": min(sizes),
        "envs_max": max(sizes),
        "envs_left_behind": left_behind,
        "wall_s": round(wall_s, 1),
        **growth(samples),
        "samples": [[s.cycle, round(s.rss_mib, 1), s.num_files] for s in samples],
    }


def envs_left_behind(learner: LearnerUnderWatch, num_residents: int) -> int:
    """Returns how many environments the learner counts whose actors have left."""
    too_many = 0
    for _ in range(100):
        visitor = Visitor(learner.address, 1)
        visitor.play(1)
        too_many = visitor.welcome.envs_connected - num_residents - 1
        visitor.leave()
        if not too_many:
            return 0
        time.sleep(0.1)  # the learner may not have seen yet that the last visitor vanished
    return too_many


def growth(samples: list[Sample]) -> dict[str, float]:
    """Compares the second quarter of the samples with the last one."""
    quarter = max(len(samples) // 4, 1)
    early, late = samples[quarter : 2 * quarter], samples[-quarter:]

    def mean(chosen: list[Sample], name: str) -> float:
        return round(sum(getattr(sample, name) for sample in chosen) / len(chosen), 1)

    return {
        "rss_mib_early": mean(early, "rss_mib"),
        "rss_mib_late": mean(late, "rss_mib"),
        "rss_growth_mib": round(mean(late, "rss_mib") - mean(early, "rss_mib"), 1),
        "files_growth": round(mean(late, "num_files") - mean(early, "num_files"), 1),
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class ElasticityArgs:
    """Lets actors of 1 to 4,096 environments join and leave a real learner."""

    cycles: int = 1_000
    """Actors that join and leave."""
    out: Path | None = None
    """JSON file to write."""

    def __post_init__(self) -> None:
        # Growth is the difference between an early and a late sample.
        require(self.cycles >= 2, "cycles", "at least 2", self.cycles)


@exits_on_error("elasticity")
def main(argv: Sequence[str]) -> int:
    """Runs the cycles and writes the results; returns 1 if something was left behind."""
    args = tyro.cli(ElasticityArgs, prog="python -m seed_bench.chaos.elasticity", args=argv)
    with tempfile.TemporaryDirectory() as directory:
        learner = LearnerUnderWatch(Path(directory))
        try:
            seen = watch(learner, args.cycles)
        finally:
            exit_code = learner.close()
    command = "python -m seed_bench.chaos.elasticity " + " ".join(argv)
    result = evidence_header(command) | {"preset": PRESET, "learner_exit_code": exit_code} | seen
    text = json.dumps(result, indent=1)
    # One sample on each line.
    text = re.sub(r"\[\s+([\d.]+),\s+([\d.]+),\s+([\d.]+)\s+\]", r"[\1, \2, \3]", text)
    if args.out is not None:
        args.out.write_text(text + "\n")
    print(text)
    return int(exit_code != 0 or seen["envs_left_behind"] != 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
