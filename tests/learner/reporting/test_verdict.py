"""The part that limits a run, found from how its threads spend their time."""

import pytest

from learner.reporting.merging import Weighted
from learner.reporting.speed import MIN_WINDOW_S
from learner.reporting.verdict import verdict


def report(trainer_wait: float, inference_wait: float, blocked: float = 0.0) -> dict[str, float]:
    """Returns the metrics of a run of 64 environments."""
    return {
        "time/trainer_wait_share": trainer_wait,
        "time/inference_wait_share": inference_wait,
        "time/inference_blocked_share": blocked,
        "inference/batch_size_mean": 37.2,
        "envs/connected": 64.0,
        "policy/lag_mean": 3.0,
    }


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (
            report(0.03, 0.4, 0.31),
            "training-bound: the trainer is busy 97% of the time and holds up acting for 31%; "
            "more environments will not help",
        ),
        # A trainer that sometimes waits, for batches that come in bursts.
        (report(0.15, 0.4, 0.3), "training-bound: the trainer is busy 85%"),
        (
            report(0.5, 0.04),
            "inference-bound: it is busy 96% of the time, with batches of 37 of 64 environments; "
            "raise envs_per_group",
        ),
        # More environments would not make larger batches.
        (
            report(0.5, 0.04) | {"inference/fill_ratio": 1.0},
            "inference-bound: it is busy 96% of the time, with batches of 37 of 64 environments; "
            "raise max_inference_batch, which they fill",
        ),
        (
            report(0.5, 0.04) | {"inference/fill_ratio": 1.0, "inference/batch_size_mean": 64.0},
            "inference-bound: it is busy 96% of the time, with batches of 64 of 64 environments; "
            "raise envs_per_group",
        ),
        (
            report(0.5, 0.6),
            "environment-bound: the trainer waits 50% of the time; about 128 environments "
            "(now 64) on cores of their own would keep it busy",
        ),
        (
            report(0.5, 0.6) | {"time/server_busy_share": 0.72},
            "serving-bound: the server thread is on a core 72% of the time, with 64 environments; "
            "raise envs_per_group or ingress_processes",
        ),
        (report(0.5, 0.6) | {"time/server_busy_share": 0.3}, "environment-bound"),
        # 64 / .0001 environments would be a precise number for a guess.
        (
            report(0.9999, 0.6),
            "environment-bound: the trainer waits 100% of the time; more than 1,024 environments "
            "(now 64)",
        ),
        (
            report(1.0, 0.6),
            "environment-bound: the trainer waits 100% of the time; more than 1,024",
        ),
        (report(0.9, 0.6), "environment-bound: the trainer waits 90% of the time; about 640"),
    ],
)
def test_verdict_names_the_limit_with_a_number(measured: dict[str, float], expected: str) -> None:
    """The other threads wait for the one that never waits."""
    got = verdict(measured)
    assert got is not None and got.startswith(expected)


def test_batches_are_compared_with_the_environments_of_one_learner() -> None:
    """Two learners that each act for all of their 64 environments are not limited by batch size."""
    measured = report(0.5, 0.04) | {"inference/fill_ratio": 1.0, "envs/connected": 128.0}
    measured["inference/batch_size_mean"] = 64.0
    told = verdict(measured, num_learners=2)
    assert told is not None
    assert told.endswith("with batches of 64 of 64 environments; raise envs_per_group")


def test_nothing_is_said_before_anything_was_trained() -> None:
    """Until then all threads wait, for actors or for a replay to fill."""
    assert verdict({}) is None
    measured = report(1.0, 0.1)
    del measured["policy/lag_mean"]
    assert verdict(measured) is None


@pytest.mark.parametrize("measured", [report(0.02, 0.5), report(0.5, 0.04), report(0.5, 0.6)])
def test_nothing_is_said_without_environments(measured: dict[str, float]) -> None:
    """A run that has ended was once told that about 0 environments would keep it busy."""
    assert verdict(measured) is not None
    assert verdict(measured | {"envs/connected": 0.0}) is None
    del measured["envs/connected"]
    assert verdict(measured) is None


@pytest.mark.parametrize("measured", [report(0.02, 0.5), report(0.5, 0.04), report(0.5, 0.6)])
def test_nothing_is_said_of_a_window_that_is_too_short(measured: dict[str, float]) -> None:
    """The weight of a share is the length of its window, in seconds."""
    name = "time/trainer_wait_share"
    measured[name] = Weighted(measured[name], MIN_WINDOW_S / 2)
    assert verdict(measured) is None
    measured[name] = Weighted(measured[name], MIN_WINDOW_S)
    assert verdict(measured) is not None


def test_more_environments_are_not_asked_for_while_none_is_trained_on() -> None:
    """The connected ones only evaluate. A trainer that holds up acting is still named."""
    assert verdict(report(0.9, 0.6) | {"env_steps_per_s": 0.0}) is None
    told = verdict(report(0.02, 0.4, 0.5) | {"env_steps_per_s": 0.0})
    assert told is not None and told.startswith("training-bound")
