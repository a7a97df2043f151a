"""One sentence on what limits a run's speed, derived from how its threads spend their time.

Read by the terminal, the log and `seed bench`. Torch-free.
"""

import math
from collections.abc import Mapping

from learner.reporting.merging import weight_of
from learner.reporting.speed import MIN_WINDOW_S

# The other threads wait for a thread that itself waits less than this share of its time.
_BUSY = 0.1
# Training is slower than acting if it holds up acting for more than this share of the time.
_HELD_UP = 0.1

# Batches that are at least this full count as full.
_FULL = 0.95

# More environments than this many times the present ones are not worth a precise number.
_MANY_TIMES = 16

# A server thread that is on a core for more than this share of the time limits the run: it
# shares Python's interpreter lock with acting.
_SERVING = 0.6


def verdict(report: Mapping[str, float], *, num_learners: int = 1) -> str | None:
    """Returns what limits the run and what to do about it.

    None before the first update, without environments, and for a window that is too short.

    Args:
      report: metrics by name, as in metrics.jsonl.
      num_learners: learners that train together, of which `report` is the merged report.
    """
    trainer_waits = report.get("time/trainer_wait_share")
    acting_waits = report.get("time/inference_wait_share")
    if trainer_waits is None or acting_waits is None or "policy/lag_mean" not in report:
        return None
    envs = report.get("envs/connected", 0.0)
    if not envs or weight_of(trainer_waits) < MIN_WINDOW_S:
        return None
    held_up = report.get("time/inference_blocked_share", 0.0)
    if trainer_waits < _BUSY or held_up > max(_HELD_UP, trainer_waits):
        return (
            f"training-bound: the trainer is busy {1 - trainer_waits:.0%} of the time and holds up "
            f"acting for {held_up:.0%}; more environments will not help"
        )
    if acting_waits < _BUSY:
        return _inference_bound(report, acting_waits, envs / num_learners)
    serving = report.get("time/server_busy_share", 0.0)
    if serving > _SERVING:
        return (
            f"serving-bound: the server thread is on a core {serving:.0%} of the time, with "
            f"{envs:.0f} environments; raise envs_per_group or ingress_processes"
        )
    if not report.get("env_steps_per_s", 1.0):
        return None  # only evaluation actors are connected, or all are stuck
    return (
        f"environment-bound: the trainer waits {trainer_waits:.0%} of the time; "
        f"{_wanted(envs, 1 - trainer_waits)} environments (now {envs:.0f}) on cores of their own "
        "would keep it busy"
    )


def _wanted(envs: float, busy: float) -> str:
    """Returns how many environments keep the trainer busy; `envs` do a share `busy` of the time."""
    if busy * _MANY_TIMES < 1:
        return f"more than {_MANY_TIMES * envs:,.0f}"
    return f"about {math.ceil(round(envs / busy, 6)):,}"  # 64 / (1 - .9) is 640, not 641


def _inference_bound(
    report: Mapping[str, float], acting_waits: float, envs_per_learner: float
) -> str:
    """Returns the verdict on a run whose inference threads hardly ever wait.

    A batch holds environments of one learner, so it is compared with those of one learner.
    """
    batch = report.get("inference/batch_size_mean", 0.0)
    is_full = report.get("inference/fill_ratio", 0.0) >= _FULL
    is_capped = is_full and batch < _FULL * envs_per_learner
    knob = "max_inference_batch, which they fill" if is_capped else "envs_per_group"
    return (
        f"inference-bound: it is busy {1 - acting_waits:.0%} of the time, with batches of "
        f"{batch:.0f} of {envs_per_learner:.0f} environments; raise {knob}"
    )
