"""The one table of metrics: each name with its unit, its meaning and how values of it merge.

Everything that reports, merges, serves or documents metrics reads it. docs/metrics.md is
generated from it. Torch-free.
"""

from fnmatch import fnmatchcase

from learner.reporting.metric_kinds import Kind, Metric, OverRanks


def _of_games(prefix: str, games: str) -> tuple[Metric, ...]:
    """Returns the rows about some games, which begin with `prefix`."""
    returns = f"undiscounted raw return of {games}"

    def row(name: str, unit: str, meaning: str, kind: Kind, over_ranks: OverRanks) -> Metric:
        weight = "" if kind in (Kind.MIN, Kind.MAX) else "games"
        return Metric(f"{prefix}/{name}", unit, meaning, kind, over_ranks, weight)

    rms = OverRanks.ROOT_MEAN_SQUARE
    return (
        row("return_mean", "reward", f"mean {returns}", Kind.MEAN, OverRanks.MEAN),
        row("return_min", "reward", f"smallest {returns}", Kind.MIN, OverRanks.MIN),
        row("return_max", "reward", f"largest {returns}", Kind.MAX, OverRanks.MAX),
        row("return_std", "reward", f"standard deviation of the {returns}", Kind.STD, rms),
        row("length_mean", "env steps", f"mean length of {games}", Kind.MEAN, OverRanks.MEAN),
    )


METRICS: tuple[Metric, ...] = (
    Metric(
        "env_steps",
        "env steps",
        "actions that training actors applied since the run began, resumes included",
        Kind.TOTAL,
        OverRanks.SAME,
    ),
    Metric(
        "env_frames",
        "frames",
        "emulator frames: env_steps times the environment's frames per step",
        Kind.TOTAL,
        OverRanks.SAME,
    ),
    Metric(
        "env_steps_per_s",
        "env steps/s",
        "speed of acting over the window; in the last report of a run, over the last window in "
        "which actors worked, as are the shares under time/",
        Kind.MEAN,
        OverRanks.SAME,
        "seconds",
    ),
    Metric(
        "learner_steps",
        "updates",
        "optimiser updates since the run began; updates that were left out because they were "
        "not finite count too",
        Kind.TOTAL,
        OverRanks.SAME,
    ),
    Metric(
        "wall_s",
        "s",
        "time that the run has been running, resumes included",
        Kind.TOTAL,
        OverRanks.SAME,
    ),
    Metric(
        "episodes",
        "games",
        "full games that ended since the run began",
        Kind.TOTAL,
        OverRanks.ADD,
    ),
    *_of_games("episode", "full games that ended in the window"),
    Metric(
        "episode/return_mean_100",
        "reward",
        "mean undiscounted raw return of the last 100 full games; with several learners, of the "
        "last 100 of each",
        Kind.LEVEL,
        OverRanks.MEAN,
        "games, at most 100 of each rank",
    ),
    *_of_games("eval", "full games of greedy actors that ended in the window"),
    Metric(
        "checkpoint/best_return",
        "reward",
        "score of the best checkpoint: mean return of 20 evaluation games or, without evaluation "
        "actors, of 100 training games",
        Kind.LEVEL,
        OverRanks.SAME,
    ),
    Metric(
        "reward/min",
        "reward",
        "smallest raw reward of any step of the window",
        Kind.MIN,
        OverRanks.MIN,
    ),
    Metric(
        "reward/max",
        "reward",
        "largest raw reward of any step of the window",
        Kind.MAX,
        OverRanks.MAX,
    ),
    Metric(
        "policy/lag_mean",
        "learner steps",
        "learner steps between the weights that acted and the weights that were updated",
        Kind.MEAN,
        OverRanks.MEAN,
        "valid steps",
    ),
    Metric(
        "policy/lag_max",
        "learner steps",
        "the largest such lag of any step trained in the window",
        Kind.MAX,
        OverRanks.MAX,
    ),
    Metric(
        "policy/max_abs_log_rho_at_zero_lag",
        "nats",
        "largest |log(pi/mu)| over steps whose lag is 0; more than rounding error is a bug",
        Kind.MAX,
        OverRanks.MAX,
    ),
    Metric(
        "policy/log_rho_mean",
        "nats",
        "log(pi/mu) of the actions taken, over valid steps",
        Kind.MEAN,
        OverRanks.MEAN,
        "updates",
    ),
    Metric(
        "policy/entropy_mean",
        "nats",
        "entropy of the target policy, over valid steps",
        Kind.MEAN,
        OverRanks.MEAN,
        "updates",
    ),
    Metric(
        "policy/entropy_cost",
        "",
        "weight of the entropy bonus in the loss",
        Kind.MEAN,
        OverRanks.MEAN,
        "updates",
    ),
    Metric(
        "policy/q_mean",
        "rescaled return",
        "Q of the actions taken, rescaled by h, over sequences",
        Kind.MEAN,
        OverRanks.MEAN,
        "updates",
    ),
    Metric(
        "policy/q_max",
        "rescaled return",
        "Q of the best action of each step, rescaled by h; a mean over sequences, not a maximum "
        "over them",
        Kind.MEAN,
        OverRanks.MEAN,
        "updates",
    ),
    Metric(
        "value/mean",
        "scaled reward",
        "estimated discounted return, over valid steps; V-trace: V, of rewards as they are trained "
        "on; R2D2: max Q, not rescaled",
        Kind.MEAN,
        OverRanks.MEAN,
        "updates",
    ),
    Metric(
        "value/explained_variance",
        "",
        "1 - Var[target - estimate] / Var[target] over the valid steps of a batch: 1 is perfect, 0 "
        "no better than a constant; V-trace: of V, R2D2: of Q, rescaled by h. Absent while all "
        "targets are alike",
        Kind.MEAN,
        OverRanks.MEAN,
        "updates",
    ),
    Metric(
        "loss/total",
        "",
        "the loss that is minimised, reduced over the batch as loss_reduction says",
        Kind.MEAN,
        OverRanks.MEAN,
        "updates",
    ),
    Metric(
        "loss/non_finite",
        "updates",
        "updates that were left out because loss or gradient was not finite; all ranks leave out "
        "the same updates",
        Kind.SUM,
        OverRanks.SAME,
    ),
    Metric(
        "loss/td_error_mean",
        "rescaled return",
        "|TD error|, rescaled by h, over sequences",
        Kind.MEAN,
        OverRanks.MEAN,
        "updates",
    ),
    Metric(
        "loss/priority_mean",
        "rescaled return",
        "priority that training gives back to replay, over sequences",
        Kind.MEAN,
        OverRanks.MEAN,
        "updates",
    ),
    Metric(
        "loss/*",
        "",
        "one term of the loss, without its weight in the loss",
        Kind.MEAN,
        OverRanks.MEAN,
        "updates",
    ),
    Metric(
        "optimizer/learning_rate",
        "",
        "step size of the latest update",
        Kind.LEVEL,
        OverRanks.SAME,
    ),
    Metric(
        "optimizer/grad_norm_mean",
        "",
        "global norm of the whole batch's gradient before clipping",
        Kind.MEAN,
        OverRanks.MEAN,
        "updates",
    ),
    Metric(
        "inference/batch_size_mean",
        "environments",
        "environments in one forward pass of a learner",
        Kind.MEAN,
        OverRanks.MEAN,
        "forward passes",
    ),
    Metric(
        "inference/fill_ratio",
        "",
        "environments in one forward pass as a share of all that are connected to the learner, "
        "or of max_inference_batch if that is less; in [0, 1]",
        Kind.MEAN,
        OverRanks.MEAN,
        "forward passes",
    ),
    Metric(
        "inference/latency_ms_p50",
        "ms",
        "time from a message's arrival to its answer, median",
        Kind.MEDIAN,
        OverRanks.MEAN,
        "messages",
    ),
    Metric(
        "inference/latency_ms_p99",
        "ms",
        "time from a message's arrival to its answer, 99th percentile; of several learners the "
        "slowest one's, which is an upper bound for all messages",
        Kind.P99,
        OverRanks.MAX,
    ),
    Metric(
        "queue/unrolls",
        "unrolls",
        "unrolls that wait for the trainer",
        Kind.LEVEL,
        OverRanks.ADD,
    ),
    Metric(
        "replay/sequences", "sequences", "sequences that replay holds", Kind.LEVEL, OverRanks.ADD
    ),
    Metric(
        "replay/gib",
        "GiB",
        "memory that these sequences take",
        Kind.LEVEL,
        OverRanks.ADD,
    ),
    Metric(
        "replay/samples_per_insert",
        "",
        "sequences sampled for each sequence inserted, since training began",
        Kind.LEVEL,
        OverRanks.MEAN,
        "sequences inserted since training began",
    ),
    Metric(
        "replay/priority_mean",
        "",
        "mean priority of these sequences, to the power of priority_exponent",
        Kind.LEVEL,
        OverRanks.MEAN,
        "sequences held",
    ),
    Metric("actors/connected", "actors", "connected actors", Kind.LEVEL, OverRanks.ADD),
    Metric(
        "actors/refused",
        "streams",
        "streams that the learner ended because of what their actor sent or did not send, or "
        "because there was no room; the log says why",
        Kind.SUM,
        OverRanks.ADD,
    ),
    Metric(
        "envs/failed",
        "failures",
        "environments that raised or gave a wrong answer; they were replaced, or their episode "
        "was cut; their actors' logs say why",
        Kind.SUM,
        OverRanks.ADD,
    ),
    Metric(
        "envs/connected",
        "environments",
        "environments of the connected actors",
        Kind.LEVEL,
        OverRanks.ADD,
    ),
    Metric(
        "time/*_busy_share",
        "",
        "<thread>: share of the window that the thread spent on a core, in [0, 1]; of several "
        "threads of one name the busiest one's",
        Kind.MEAN,
        OverRanks.MAX,
        "seconds",
    ),
    Metric(
        "time/*_share",
        "",
        "<thread>_<activity>: share of the window that the thread spent on the activity, in [0, 1]",
        Kind.MEAN,
        OverRanks.MEAN,
        "seconds",
    ),
)

_BY_NAME = {metric.name: metric for metric in METRICS}
_PATTERNS = [metric for metric in METRICS if "*" in metric.name]


def is_known(name: str) -> bool:
    """Tells whether the table has a row for `name`."""
    return _find(name) is not None


def metric_of(name: str) -> Metric:
    """Returns the row for `name`: its own, or that of the first pattern it fits.

    An agent from elsewhere may report a name without a row. The trainer takes the mean of
    an agent's metrics over updates, so such a name is treated as a mean.
    """
    return _find(name) or Metric(name, "", name, Kind.MEAN, OverRanks.MEAN, "updates")


def _find(name: str) -> Metric | None:
    if name in _BY_NAME:
        return _BY_NAME[name]
    return next((metric for metric in _PATTERNS if fnmatchcase(name, metric.name)), None)
