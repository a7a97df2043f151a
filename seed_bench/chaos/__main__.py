"""Trains CartPole while its processes are killed, stalled, disconnected and sent garbage.

    python -m seed_bench.chaos --faults 240 --out docs/results/chaos.json

The run must continue without help, lose no more than the steps since its last checkpoint, and
still learn the game.
"""

import dataclasses
import json
import logging
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import tyro

from actors.spaces import SpaceAdapter
from seed.errors import exits_on_error, require
from seed.provenance import evidence_header
from seed_bench.chaos.fleet import CHECKPOINT_EVERY_S, PRESET, Fleet
from seed_bench.chaos.run import Books, ChaosRun
from seed_bench.chaos.schedule import SHARES, make_schedule
from seed_bench.processes import run_module

ENV_ID = "CartPole-v1"
NUM_ACTORS = 3
EVAL_EPISODES = 20

# Share of the run's steps in which faults come. In the rest the run must learn undisturbed.
_SHARE_WITH_FAULTS = 0.8

# A kill may cost the steps since the last checkpoint. One is due CHECKPOINT_EVERY_S after the one
# before, or after the start; then it waits for the running update, and is written. The 3 s are
# for that, and for a stall of the learner at that moment, of 2 s at most.
RUN_S_LOST_BOUND = CHECKPOINT_EVERY_S + 3.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChaosArgs:
    """Trains CartPole while its processes are killed, stalled, disconnected and sent garbage."""

    faults: int = 240
    """Faults to inject."""
    total_env_steps: int = 2_000_000
    """Env steps of the run."""
    rng_seed: int = 1
    """Seed of the run and of the schedule of faults."""
    return_at_least: float = 450.0
    """Mean return that the greedy policy must reach in the end."""
    out: Path | None = None
    """JSON file to write."""

    def __post_init__(self) -> None:
        require(self.faults >= 1, "faults", "at least 1", self.faults)
        require(self.total_env_steps >= 2, "total_env_steps", "at least 2", self.total_env_steps)


def run_chaos(
    directory: Path,
    *,
    num_faults: int,
    total_env_steps: int,
    rng_seed: int,
    share_with_faults: float = _SHARE_WITH_FAULTS,
) -> dict[str, Any]:
    """Runs one fleet to its end; returns its results, its faults and its losses."""
    schedule = make_schedule(
        num_faults,
        num_actors=NUM_ACTORS,
        until_env_steps=round(share_with_faults * total_env_steps),
        rng_seed=rng_seed,
    )
    environment = gymnasium.make(ENV_ID)
    spec = SpaceAdapter(environment.observation_space, environment.action_space).spec
    started_s = time.monotonic()
    with Fleet(
        directory, num_actors=NUM_ACTORS, total_env_steps=total_env_steps, rng_seed=rng_seed
    ) as fleet:
        run = ChaosRun(fleet, schedule, spec)
        run.play()
    last = run.last_report
    return {
        "env_id": ENV_ID,
        "rng_seeds": [rng_seed],
        "return_mean_100": last.get("episode/return_mean_100"),
        "env_steps": last["env_steps"],
        "wall_s": round(time.monotonic() - started_s, 1),
        **summary(run.books),
    }


def summary(books: Books) -> dict[str, Any]:
    """Returns the table's numbers."""
    return {
        "faults_injected": books.injected.total(),
        "faults_survived": books.survived.total(),
        "learner_kills": books.learner_kills,
        "actor_kills": books.injected["actor killed"],
        "env_steps_lost_max": max(books.env_steps_lost, default=0),
        "env_steps_lost_bound": round(RUN_S_LOST_BOUND * books.env_steps_per_s_max),
        "run_s_lost_max": round(max(books.run_s_lost, default=0.0), 2),
        "run_s_lost_bound": RUN_S_LOST_BOUND,
        "checkpoint_every_s": CHECKPOINT_EVERY_S,
        "lost_is": "done by the last report and not in the newest whole checkpoint",
        "env_steps_per_s_max": round(books.env_steps_per_s_max),
        "checkpoints_verified": books.checkpoints_verified,
        "faults": {
            kind: {"injected": books.injected[kind], "survived": books.survived[kind]}
            for kind in SHARES
        },
        "failures": books.failures,
    }


def table(result: dict[str, Any]) -> str:
    """Returns the result as text."""
    lines = [f"{'fault':26}{'injected':>10}{'survived':>10}"]
    for kind, counts in result["faults"].items():
        lines.append(f"{kind:26}{counts['injected']:10}{counts['survived']:10}")
    lines.append(f"{'all':26}{result['faults_injected']:10}{result['faults_survived']:10}")
    lines.append("")
    for name in (
        *("learner_kills", "actor_kills", "checkpoints_verified"),
        *("env_steps_lost_max", "env_steps_lost_bound", "run_s_lost_max", "run_s_lost_bound"),
        *("return_mean_100", "eval_return_mean", "env_steps", "wall_s"),
    ):
        if name in result:
            lines.append(f"{name:26}{result[name]:>20}")
    return "\n".join(lines + [f"FAILED: {failure}" for failure in result["failures"]])


def evaluate(run_dir: Path) -> dict[str, Any]:
    """Returns the results of greedy games with the run's last checkpoint.

    In training, actions are sampled, so those games return less.
    """
    flags = ("--episodes", str(EVAL_EPISODES), "--json")
    result = run_module(["seed.cli", "eval", str(run_dir), *flags])
    names = ("eval_return_mean", "eval_episodes")
    return {"eval_policy": "greedy", **{name: result[name] for name in names}}


def is_good(result: dict[str, Any]) -> bool:
    """Tells whether the run survived every fault and refused every garbage client."""
    return result["faults_survived"] == result["faults_injected"] and not result["failures"]


def loses_little(result: dict[str, Any]) -> bool:
    """Tells whether no kill cost more than the bound."""
    return result["run_s_lost_max"] <= RUN_S_LOST_BOUND


@exits_on_error("chaos")
def main(argv: Sequence[str]) -> int:
    """Runs, evaluates, prints the table and writes the evidence; returns 1 if it is not good."""
    args = tyro.cli(ChaosArgs, prog="python -m seed_bench.chaos", args=argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with tempfile.TemporaryDirectory() as directory:
        result = run_chaos(
            Path(directory),
            num_faults=args.faults,
            total_env_steps=args.total_env_steps,
            rng_seed=args.rng_seed,
        )
        result |= evaluate(Path(directory) / "run")
    command = "python -m seed_bench.chaos " + " ".join(argv)
    header: dict[str, Any] = evidence_header(command) | {"preset": PRESET}
    result = header | result
    if args.out is not None:
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))
    has_learned = result["eval_return_mean"] >= args.return_at_least
    return int(not (is_good(result) and loses_little(result) and has_learned))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
