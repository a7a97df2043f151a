"""Reports merged over ranks and over windows, with numbers worked by hand."""

import json
import math
import pickle
from typing import Any

import pytest

from learner.reporting.counters import Counters
from learner.reporting.merging import (
    Weighted,
    decode_report,
    encode_report,
    largest,
    merge_ranks,
    merge_windows,
    smallest,
    weight_of,
)
from learner.reporting.metric_kinds import Kind, OverRanks
from learner.reporting.metric_table import METRICS
from learner.reporting.metrics import Metrics
from seed.wire import Episode


@pytest.mark.parametrize(
    ("name", "by_rank", "merged"),
    [
        # The golden check was once averaged, which halved the fault of one rank.
        ("policy/max_abs_log_rho_at_zero_lag", [1e-6, 0.25], 0.25),
        ("policy/lag_max", [3.0, 9.0, 4.0], 9.0),
        ("replay/gib", [1.5, 2.0], 3.5),
        ("replay/sequences", [100.0, 120.0], 220.0),
        ("queue/unrolls", [4.0, 0.0], 4.0),
        ("actors/connected", [2.0, 3.0], 5.0),
        ("actors/refused", [1.0, 3.0], 4.0),
        ("episodes", [10, 30], 40),
        # One game of -21 counts less than nine of 21.
        ("episode/return_mean", [Weighted(-21, 1), Weighted(21, 9)], 16.8),
        ("episode/return_mean_100", [Weighted(0, 100), Weighted(10, 25)], 2.0),
        ("episode/return_min", [-21.0, -3.0], -21.0),
        ("episode/return_max", [5.0, 21.0, 7.0], 21.0),
        # sqrt((3 * 2^2 + 1 * 6^2) / 4)
        ("episode/return_std", [Weighted(2, 3), Weighted(6, 1)], math.sqrt(12)),
        ("eval/length_mean", [Weighted(100, 3), Weighted(200, 1)], 125.0),
        ("policy/lag_mean", [Weighted(1, 300), Weighted(5, 100)], 2.0),
        ("loss/total", [Weighted(2, 10), Weighted(4, 30)], 3.5),
        # This is a mean, although its name ends like a maximum's.
        ("policy/q_max", [Weighted(2, 10), Weighted(4, 30)], 3.5),
        # All ranks leave out the same updates.
        ("loss/non_finite", [2.0, 2.0], 2.0),
        ("optimizer/learning_rate", [2e-4, 1e-4], 2e-4),
        ("optimizer/grad_norm_mean", [Weighted(2, 10), Weighted(4, 30)], 3.5),
        ("inference/batch_size_mean", [Weighted(8, 100), Weighted(32, 300)], 26.0),
        ("inference/fill_ratio", [Weighted(0.5, 100), Weighted(0.9, 300)], 0.8),
        ("inference/latency_ms_p50", [Weighted(2, 100), Weighted(6, 300)], 5.0),
        ("inference/latency_ms_p99", [9.0, 40.0], 40.0),
        ("replay/samples_per_insert", [Weighted(1, 30), Weighted(3, 10)], 1.5),
        ("replay/priority_mean", [Weighted(1, 30), Weighted(3, 10)], 1.5),
        ("time/trainer_wait_share", [Weighted(0.2, 5), Weighted(0.4, 5)], 0.3),
        # This is the busiest server of all ranks, as it is the busiest of one rank.
        ("time/server_busy_share", [Weighted(0.2, 5), Weighted(0.9, 5)], 0.9),
        ("env_steps", [1000, 990], 1000),
        ("env_steps_per_s", [480.0, 470.0], 480.0),
        # Metrics of another package's agent, and values without weights.
        ("kl/approximate", [1.0, 2.0], 1.5),
    ],
)
def test_ranks_are_merged_as_the_table_says(name: str, by_rank: list[float], merged: float) -> None:
    """A run's value is the one that a single learner with all actors would report."""
    assert merge_ranks([{name: value} for value in by_rank]) == {name: pytest.approx(merged)}


def test_rank_that_reports_nothing_is_ignored() -> None:
    """A window without games neither counts as 0 nor breaks the merge."""
    reports = [{}, {"episode/return_mean": Weighted(4, 2), "actors/refused": 1.0}, {}]
    assert merge_ranks(reports) == {"episode/return_mean": 4.0, "actors/refused": 1.0}


def test_value_that_all_ranks_share_comes_from_the_first_rank_or_is_absent() -> None:
    """Else an update that is left out would count once for each rank."""
    assert merge_ranks([{}, {"loss/non_finite": 1.0}]) == {}


def test_merge_of_one_report_is_that_report() -> None:
    """This holds for every rule of merging."""
    report = {metric.name.replace("*", "x"): 0.5 for metric in METRICS}
    assert merge_ranks([report]) == report
    assert merge_windows([report]) == report


def test_weight_of_a_merged_mean_is_the_sum_of_its_parts() -> None:
    """Three ranks merged at once, or two of them first, give the same mean."""
    values = [Weighted(1, 1), Weighted(2, 2), Weighted(6, 5)]
    reports: list[dict[str, float]] = [{"loss/total": value} for value in values]
    at_once = merge_ranks(reports)["loss/total"]
    in_steps = merge_ranks([merge_ranks(reports[:2]), reports[2]])["loss/total"]
    assert at_once == in_steps == pytest.approx(35 / 8)
    assert weight_of(at_once) == weight_of(in_steps) == 8


@pytest.mark.parametrize(
    ("name", "windows", "merged"),
    [
        ("env_steps", [100, 250], 250),
        ("actors/connected", [4.0, 2.0], 2.0),
        ("episode/return_mean_100", [Weighted(1, 50), Weighted(2, 60)], 2.0),
        ("actors/refused", [1.0, 2.0], 3.0),
        ("loss/non_finite", [1.0, 1.0], 2.0),
        ("policy/lag_max", [7.0, 3.0], 7.0),
        ("eval/return_min", [7.0, 3.0], 3.0),
        ("eval/return_std", [Weighted(2, 3), Weighted(6, 1)], math.sqrt(12)),
        ("policy/lag_mean", [Weighted(1, 300), Weighted(5, 100)], 2.0),
        ("time/server_busy_share", [Weighted(0.2, 5), Weighted(0.8, 15)], 0.65),
        ("inference/latency_ms_p50", [Weighted(2, 100), Weighted(6, 300)], 5.0),
        ("inference/latency_ms_p99", [40.0, 9.0], 40.0),
    ],
)
def test_windows_are_merged_as_the_table_says(
    name: str, windows: list[float], merged: float
) -> None:
    """A window without a value in between is ignored."""
    first, second = ({name: value} for value in windows)
    assert merge_windows([first, {}, second]) == {name: pytest.approx(merged)}


def test_every_kind_and_rule_is_used_by_a_metric() -> None:
    """No kind and no rule is unused."""
    assert {metric.kind for metric in METRICS} == set(Kind)
    assert {metric.over_ranks for metric in METRICS} == set(OverRanks)


@pytest.mark.parametrize("values", [(math.nan, 1.0), (1.0, math.nan, 2.0)])
def test_extremes_do_not_hide_nan(values: tuple[float, ...]) -> None:
    """A golden check that is NaN must not be hidden by another rank's value."""
    assert math.isnan(largest(values))
    assert math.isnan(smallest(values))


def report_of_games(returns: list[float]) -> dict[str, float]:
    """Returns the report of a rank after these full games."""
    counters = Counters()
    for each in returns:
        counters.add_episode(Episode(env=0, episode_return=each, length=10), is_eval=False)
    return counters.report()


def report_of_lags(lags: list[float]) -> dict[str, float]:
    """Returns the report of a rank after steps with these lags."""
    metrics = Metrics()
    for each in lags:
        metrics.mean("policy/lag_mean", each)
    return metrics.drain()


def test_weights_come_from_what_reports() -> None:
    """Counters and metrics weigh each mean, so the merge is the mean over all values."""
    games = merge_ranks([report_of_games([1.0]), report_of_games([2.0, 3.0, 10.0])])
    assert games["episode/return_mean"] == games["episode/return_mean_100"] == 4.0
    assert games["episodes"] == 4
    means = merge_ranks([report_of_lags([1.0]), report_of_lags([2.0, 3.0, 10.0])])
    assert means == {"policy/lag_mean": 4.0}


@pytest.mark.parametrize(
    "travel",
    [lambda report: decode_report(encode_report(report)), lambda r: pickle.loads(pickle.dumps(r))],
    ids=["store", "pickle"],
)
def test_weights_travel_between_processes(travel: Any) -> None:
    """They pass through the ranks' store and from a trainer process, and other values stay."""
    report = {"loss/total": Weighted(0.1, 3), "episodes": 7, "loss/value": math.inf}
    got = travel(report)
    assert got == report
    assert [weight_of(value) for value in got.values()] == [3, 1, 1]
    assert type(got["episodes"]) is int


def test_weighted_mean_is_a_plain_float_in_json() -> None:
    """metrics.jsonl holds no weights."""
    assert json.dumps({"x": Weighted(2.5, 4)}) == '{"x": 2.5}'
