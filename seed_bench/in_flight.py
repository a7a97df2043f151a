"""How many environments a far-away learner needs: Little's law.

An environment waits for its action before it steps again. So

    env steps/s <= environments in flight / (round trip + step of its group + time on the learner)

and less if the machines themselves are the limit. `seed bench` and `seed load` print this
number for their measurements; docs/links.md compares it with runs.
"""

import math
from typing import NamedTuple

# Almost the round trip between continents; within a data centre it is under 1 ms.
FAR_S = 0.05


class Cycle(NamedTuple):
    """The time between two steps of an environment, in seconds, by its parts."""

    round_trip_s: float
    """Time on the network."""
    group_s: float
    """Time in which an actor steps the environment's group."""
    learner_s: float
    """Time from a step's arrival to its answer: `inference/latency_ms_p50` / 1000."""

    @property
    def seconds(self) -> float:
        """The whole time between two steps."""
        return sum(self)

    def env_steps_per_s(self, num_envs: int) -> float:
        """Returns the highest rate of `num_envs` environments in flight."""
        return num_envs / self.seconds

    def envs_needed(self, env_steps_per_s: float) -> int:
        """Returns how many environments must be in flight for that many env steps per second."""
        return math.ceil(env_steps_per_s * self.seconds)


def advice(env_steps_per_s: float, *, group_s: float, learner_s: float) -> str:
    """Returns one sentence on a learner that was measured without a network.

    Args:
      env_steps_per_s: the rate that the learner reached.
      group_s: see `Cycle`.
      learner_s: see `Cycle`; under that load.
    """
    cycle = Cycle(FAR_S, group_s, learner_s)
    return (
        f"over {1000 * FAR_S:.0f} ms this learner needs {cycle.envs_needed(env_steps_per_s):,} "
        f"environments in flight for its {env_steps_per_s:,.0f} env steps/s "
        f"({1000 * group_s:.1f} ms are a group's step, {1000 * learner_s:.1f} ms the learner's)"
    )
