"""Measures the cost of carrying steps: one real actor, a null environment and no network.

Called by `python -m seed_bench.parts.learner wire`, in a process of its own. Server and batcher are
those of a run; behind them either nothing is kept, or the slots' state and the unrolls.
"""

import dataclasses
import os
import subprocess
import sys
import threading
import time
from typing import Literal

from learner.concurrency.cpu_time import cpu_seconds_of
from learner.config.run_config import ActorConfig
from learner.serving.task import make_task
from seed.env_config import EnvConfig
from seed.errors import SeedError, require
from seed_bench.parts.loaded_learner import LoadedLearner

# Skips the connection's first messages.
_WARM_UP_S = 0.5

_NULL_ENV = EnvConfig(env_id="seed/Null-v0")

# Seconds between two checks whether the actor has ended.
_LOOK_EVERY_S = 0.2


@dataclasses.dataclass(frozen=True, kw_only=True)
class WireArgs:
    """Server, batcher and one real actor, without environment or network."""

    policy: Literal["null", "store"] = "null"
    """store: keep slot state and unrolls, as `loaded_learner --help` has it."""
    envs_per_group: int = 32
    """Environments in a message; observations are uint8 [84, 84]."""
    num_groups: int = 2
    """Groups of the actor."""
    share_memory: bool = False
    """Pass the steps through memory rather than gRPC."""
    seconds: float = 4.0
    """Seconds to measure for."""

    def __post_init__(self) -> None:
        require(self.seconds > 0, "seconds", "above 0", self.seconds)


def measure_wire(args: WireArgs) -> dict[str, float]:
    """Returns CPU seconds per env step on either side, and env steps per second.

    Raises:
      ConfigError: the actor would have no environments.
      SeedError: the actor ended, for example because the learner refused it.
    """
    actor_config = ActorConfig(envs_per_group=args.envs_per_group, num_groups=args.num_groups)
    learner = LoadedLearner(args.policy, make_task(_NULL_ENV, actor_config))
    with learner.serving() as address:
        command = [sys.executable, "-m", "actors", "--learner", address]
        command += ["--exit-with-parent", str(os.getpid())]
        command += ["--share-memory"] if args.share_memory else []
        actor = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            wait_for_steps(learner.answered, actor)
            return _measure_window(args.seconds, learner, actor.pid)
        finally:
            actor.terminate()
            actor.wait()


def wait_for_steps(answered: threading.Event, actor: subprocess.Popen[str]) -> None:
    """Returns once a step was answered; raises SeedError if the actor ends before that.

    Args:
      answered: set by the learner.
      actor: its standard error is a pipe.
    """
    while not answered.wait(_LOOK_EVERY_S):
        if actor.poll() is not None:
            _, errors = actor.communicate()
            raise SeedError(f"the actor ended with code {actor.returncode}:\n{errors}")


def _measure_window(seconds: float, learner: LoadedLearner, actor_pid: int) -> dict[str, float]:
    time.sleep(_WARM_UP_S)
    steps, wall_s = learner.env_steps, time.perf_counter()
    server_s, actor_s = time.process_time(), cpu_seconds_of(actor_pid)
    time.sleep(seconds)
    steps = learner.env_steps - steps
    return {
        "server": (time.process_time() - server_s) / steps,
        "actor": (cpu_seconds_of(actor_pid) - actor_s) / steps,
        "env_steps_per_s": steps / (time.perf_counter() - wall_s),
    }
