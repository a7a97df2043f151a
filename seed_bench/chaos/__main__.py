"""Trains CartPole while its processes are killed, stalled, cut off and lied to.

    python -m seed_bench.chaos --faults 240 --out docs/results/chaos.json

The run has to go on by itself, lose no more than what came after its last checkpoint, and
learn the game all the same.
"""

import argparse
import json
import logging
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium

from actors.spaces import SpaceAdapter
from seed.provenance import evidence_header
from seed_bench.chaos.fleet import CHECKPOINT_EVERY_S, PRESET, Fleet
from seed_bench.chaos.run import Books, ChaosRun
from seed_bench.chaos.schedule import SHARES, make_schedule

ENV_ID = "CartPole-v1"
NUM_ACTORS = 3
EVAL_EPISODES = 20

# Of a run's steps so many see faults; the rest shows that it is well.
_SHARE_WITH_FAULTS = 0.8

# What a kill may cost is what came after the last checkpoint. One is due this long after
# the one before, or after the start; then it waits for the update under way, and is
# written. A learner that is stalled just then is so for 2 s at most.
RUN_S_LOST_BOUND = CHECKPOINT_EVERY_S + 3.0


def run_chaos(
    directory: Path,
    *,
    num_faults: int,
    total_env_steps: int,
    rng_seed: int,
    share_with_faults: float = _SHARE_WITH_FAULTS,
) -> dict[str, Any]:
    """Runs one fleet to its end; returns what was done to it and what it cost."""
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
    """Returns what a person wants to see of it."""
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

    The games trained on are played by sampling from the policy, and stay below these.
    """
    command = [
        *(sys.executable, "-m", "seed.cli", "eval", str(run_dir)),
        *("--episodes", str(EVAL_EPISODES), "--json"),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result = json.loads(done.stdout)
    return {name: result[name] for name in ("eval_return_mean", "eval_episodes")} | {
        "eval_policy": "greedy"
    }


def is_good(result: dict[str, Any]) -> bool:
    """Tells whether the run survived everything, and everything was refused that should be."""
    return result["faults_survived"] == result["faults_injected"] and not result["failures"]


def loses_little(result: dict[str, Any]) -> bool:
    """Tells whether no kill cost more than the bound."""
    return result["run_s_lost_max"] <= RUN_S_LOST_BOUND


def main(arguments: list[str]) -> int:
    """Runs, evaluates, prints the table and writes the evidence; 1 if it is not good."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--faults", type=int, default=240, help="faults to inject")
    parser.add_argument("--total-env-steps", type=int, default=2_000_000, help="length of the run")
    parser.add_argument("--rng-seed", type=int, default=1, help="decides run and faults")
    parser.add_argument("--return-at-least", type=float, default=450.0, help="greedy, mean")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with tempfile.TemporaryDirectory() as directory:
        result = run_chaos(
            Path(directory),
            num_faults=options.faults,
            total_env_steps=options.total_env_steps,
            rng_seed=options.rng_seed,
        )
        result |= evaluate(Path(directory) / "run")
    command = "python -m seed_bench.chaos " + " ".join(arguments)
    result = evidence_header(command) | {"preset": PRESET} | result
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))
    has_learned = result["eval_return_mean"] >= options.return_at_least
    return int(not (is_good(result) and loses_little(result) and has_learned))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
