"""One sentence on what limits a run's speed, from the report of where its threads' time goes.

For the terminal, the log and `seed bench`. Torch-free.
"""

import math
from collections.abc import Mapping

# A thread that waits less than this share of its time is what the others wait for.
_BUSY = 0.1
# Acting that is held up more than this share of its time is ahead of training.
_HELD_UP = 0.1

# Batches at least this full are as large as they can get.
_FULL = 0.95

# A server thread that is on a core so much has little left: it takes turns with acting at
# Python's interpreter lock.
_SERVING = 0.6


def verdict(report: Mapping[str, float]) -> str | None:
    """Returns what limits the run and what to do about it; None before it can be told.

    Args:
      report: metrics by name, as in metrics.jsonl.
    """
    trainer_waits = report.get("time/trainer_wait_share")
    acting_waits = report.get("time/inference_wait_share")
    if trainer_waits is None or acting_waits is None or "policy/lag_mean" not in report:
        return None
    held_up = report.get("time/inference_blocked_share", 0.0)
    if trainer_waits < _BUSY or held_up > max(_HELD_UP, trainer_waits):
        return (
            f"training-bound: the trainer is busy {1 - trainer_waits:.0%} of the time and holds up "
            f"acting for {held_up:.0%}; more environments will not help"
        )
    batch = report.get("inference/batch_size_mean", 0.0)
    envs = report.get("envs/connected", 0.0)
    if acting_waits < _BUSY:
        is_capped = report.get("inference/fill_ratio", 0.0) >= _FULL and batch < _FULL * envs
        knob = "max_inference_batch, which they fill" if is_capped else "envs_per_group"
        return (
            f"inference-bound: it is busy {1 - acting_waits:.0%} of the time, with batches of "
            f"{batch:.0f} of {envs:.0f} environments; raise {knob}"
        )
    serving = report.get("time/server_busy_share", 0.0)
    if serving > _SERVING:
        return (
            f"serving-bound: the server thread is on a core {serving:.0%} of the time, with "
            f"{envs:.0f} environments; raise envs_per_group or ingress_processes"
        )
    wanted = math.ceil(envs / (1 - trainer_waits)) if trainer_waits < 1 else 2 * envs
    return (
        f"environment-bound: the trainer waits {trainer_waits:.0%} of the time; about "
        f"{wanted:.0f} environments (now {envs:.0f}) on cores of their own would keep it busy"
    )
