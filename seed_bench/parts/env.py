"""Measures the cost of one env step on this machine: `python -m seed_bench.parts.env --json`.

`seed bench` runs it in a process of its own, so that no other work is measured. Actions are random,
and nothing is sent to a learner.
"""

import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tyro
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from actors.envs import decode_settings, make_vector_env
from seed.env_config import EnvConfig
from seed.errors import ConfigError, exits_on_error, expected, require
from seed.search_path import search_current_folder

# A measurement is the best of this many: other work on the machine can only slow it down.
_NUM_ROUNDS = 5
_NUM_RANDOM_ACTIONS = 256


class EnvCost(NamedTuple):
    """Seconds per env step, where one step of E environments is E env steps."""

    cpu_s: float
    """Processor time of all threads."""
    wall_s: float
    env_steps: int
    """Env steps measured, all rounds together."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvArgs:
    """Measures what one step of an environment costs."""

    env_id: str
    """Registered Gymnasium id."""
    env_settings: str = "{}"
    """JSON object of the environment's settings, as a learner sends them."""
    num_envs: int = 32
    """Environments that step together."""
    seconds: float = 5.0
    """Seconds to measure for, after the environments are made."""
    env_threads: int = 1
    """Threads that step them, for environments that can use more than one (ALE/*)."""
    json: bool = False
    """Print one JSON object rather than a sentence."""

    def __post_init__(self) -> None:
        for name in ("num_envs", "seconds", "env_threads"):
            require(getattr(self, name) > 0, name, "above 0", getattr(self, name))


def measure_env(env: EnvConfig, num_envs: int, seconds: float, num_threads: int = 1) -> EnvCost:
    """Returns the cost of an env step, the best of several rounds of `seconds` in all."""
    vector_env = make_vector_env(env, num_envs=num_envs, num_threads=num_threads)
    try:
        vector_env.reset(seed=0)
        actions = _random_actions(vector_env)
        _measure_round(vector_env, actions, 0.1 * seconds / _NUM_ROUNDS)  # warm-up
        rounds = [
            _measure_round(vector_env, actions, seconds / _NUM_ROUNDS) for _ in range(_NUM_ROUNDS)
        ]
    finally:
        vector_env.close()
    return EnvCost(
        cpu_s=min(cost.cpu_s for cost in rounds),
        wall_s=min(cost.wall_s for cost in rounds),
        env_steps=sum(cost.env_steps for cost in rounds),
    )


def _random_actions(vector_env: VectorEnv) -> np.ndarray:
    space = vector_env.single_action_space
    if not isinstance(space, spaces.Discrete):
        raise ConfigError(expected("action", "a Discrete space", space))
    shape = (_NUM_RANDOM_ACTIONS, vector_env.num_envs)
    return space.start + np.random.default_rng(0).integers(0, space.n, shape)


def _measure_round(vector_env: VectorEnv, actions: np.ndarray, seconds: float) -> EnvCost:
    steps = 0
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    while True:
        vector_env.step(actions[steps % _NUM_RANDOM_ACTIONS])
        steps += 1
        elapsed_s = time.perf_counter() - wall_s
        if elapsed_s >= seconds:
            break
    env_steps = steps * vector_env.num_envs
    return EnvCost((time.process_time() - cpu_s) / env_steps, elapsed_s / env_steps, env_steps)


@exits_on_error("seed_bench.parts.env")
def main(argv: Sequence[str]) -> int:
    """Prints the cost of an env step; returns the exit code."""
    search_current_folder()
    args = tyro.cli(EnvArgs, prog="python -m seed_bench.parts.env", args=argv)
    env = decode_settings(args.env_id, args.env_settings)
    cost = measure_env(env, args.num_envs, args.seconds, args.env_threads)
    if args.json:
        report = {
            "env_id": args.env_id,
            "num_envs": args.num_envs,
            "env_threads": args.env_threads,
            "env_cpu_s_per_step": cost.cpu_s,
            "env_wall_s_per_step": cost.wall_s,
            "env_steps": cost.env_steps,
        }
        print(json.dumps(report))
    else:
        print(f"{args.env_id}: {1e6 * cost.wall_s:.1f} us a step, {1e6 * cost.cpu_s:.1f} us of CPU")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
