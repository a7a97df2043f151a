"""The trainer thread's loop: batch, golden check, update, publish, save.

`trainer.py` holds the update itself.
"""

from collections.abc import Callable

from learner.concurrency.stopping import Stopped
from learner.experience.base import Experience, Sample
from learner.reporting.metrics import Metrics, ThreadClock
from learner.reporting.progress import Progress
from learner.training.ranks import Ranks
from learner.training.trainer import Trainer
from learner.training.zero_lag_check import ZeroLagCheck
from learner.weights import PublishedWeights

# Learner steps between two golden checks. Each costs one forward pass of a batch.
ZERO_LAG_CHECK_EVERY = 100


def run_training(
    *,
    trainer: Trainer,
    experience: Experience,
    weights: PublishedWeights,
    check: ZeroLagCheck,
    progress: Progress,
    ranks: Ranks,
    total_env_steps: int,
    save_if_due: Callable[[], None],
    metrics: Metrics,
    clock: ThreadClock,
) -> None:
    """Trains until the budget is spent or the experience closes, on any of the ranks."""
    clock.switch("wait")
    ranks.join(trainer.network, progress.learner_steps)
    check.published(trainer.acting_part, progress.learner_steps)
    while (env_steps := _env_steps_of_all(ranks, progress)) < total_env_steps:
        clock.switch("wait")
        sample = _next_batch(experience)
        if ranks.total(int(sample is None)) or sample is None:
            return
        clock.switch("update")
        deviation = check.compare(sample.newest) if sample.newest is not None else None
        if deviation is not None:
            metrics.max("policy/max_abs_log_rho_at_zero_lag", deviation)
        priorities = trainer.train_step(
            sample.batch, learner_step=progress.learner_steps, progress=env_steps / total_env_steps
        )
        experience.trained(sample, priorities)
        progress.learner_steps += 1
        clock.switch("publish")
        weights.publish(trainer.acting_part, progress.learner_steps)
        check.published(trainer.acting_part, progress.learner_steps)
        clock.switch("save")
        save_if_due()
    clock.switch("wait")


def _env_steps_of_all(ranks: Ranks, progress: Progress) -> int:
    """Returns the env steps of all ranks, on which they agree; stores the others' share."""
    if ranks.size == 1:
        return progress.env_steps
    own = progress.own_env_steps
    total = ranks.total(own)
    progress.others_env_steps = total - own
    return total


def _next_batch(experience: Experience) -> Sample | None:
    try:
        return experience.next_batch()
    except Stopped:
        return None
