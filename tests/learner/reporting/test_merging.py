"""Reports merged into one, over ranks and over windows, by numbers worked by hand."""

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
    weight_of,
)
from learner.reporting.metric_table import METRICS, Kind, OverRanks
from learner.reporting.metrics import Metrics
from seed.wire import Episode


@pytest.mark.parametrize(
    ("name", "by_rank", "merged"),
    [
        # The golden check was once averaged: one rank's fault was halved.
        ("policy/max_abs_log_rho_at_zero_lag", [1e-6, 0.25], 0.25),
        ("policy/lag_max", [3.0, 9.0, 4.0], 9.0),
        ("replay/gib", [1.5, 2.0], 3.5),
        ("replay/sequences", [100.0, 120.0], 220.0),
        ("queue/unrolls", [4.0, 0.0], 4.0),
        ("actors/connected", [2.0, 3.0], 5.0),
        ("actors/refused", [1.0, 3.0], 4.0),
        ("episodes", [10, 30], 40),
        # One game of -21 does not count as much as nine of 21.
        ("episode/return_mean", [Weighted(-21, 1), Weighted(21, 9)], 16.8),
        ("episode/return_mean_100", [Weighted(0, 100), Weighted(10, 25)], 2.0),
        ("eval/length_mean", [Weighted(100, 3), Weighted(200, 1)], 125.0),
        ("policy/lag_mean", [Weighted(1, 300), Weighted(5, 100)], 2.0),
        ("loss/total", [Weighted(2, 10), Weighted(4, 30)], 3.5),
        # A mean, although its name ends like a maximum's.
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
        # The busiest server of any rank, as it is the busiest of one rank.
        ("time/server_busy_share", [Weighted(0.2, 5), Weighted(0.9, 5)], 0.9),
        ("env_steps", [1000, 990], 1000),
        ("env_steps_per_s", [480.0, 470.0], 480.0),
        # An agent from elsewhere, and values without weights.
        ("kl/approximate", [1.0, 2.0], 1.5),
    ],
)
def test_ranks_are_merged_as_the_table_says(name: str, by_rank: list[float], merged: float) -> None:
    """The value of a run is what one learner with all the actors would have reported."""
    assert merge_ranks([{name: value} for value in by_rank]) == {name: pytest.approx(merged)}


def test_rank_that_reports_nothing_takes_no_part() -> None:
    """A window without games neither counts as 0 nor breaks the merge."""
    reports = [{}, {"episode/return_mean": Weighted(4, 2), "actors/refused": 1.0}, {}]
    assert merge_ranks(reports) == {"episode/return_mean": 4.0, "actors/refused": 1.0}


def test_what_all_ranks_measure_alike_comes_from_the_first_or_not_at_all() -> None:
    """Else an update left out would count in the window of the second rank, then of the first."""
    assert merge_ranks([{}, {"loss/non_finite": 1.0}]) == {}


def test_merge_of_one_report_is_that_report() -> None:
    """Whichever rule a metric has."""
    report = {metric.name.replace("*", "x"): 0.5 for metric in METRICS}
    assert merge_ranks([report]) == report
    assert merge_windows([report]) == report


def test_merged_mean_weighs_what_its_parts_weigh() -> None:
    """Three ranks merged at once, or two of them first, give the same."""
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
        ("policy/lag_mean", [Weighted(1, 300), Weighted(5, 100)], 2.0),
        ("time/server_busy_share", [Weighted(0.2, 5), Weighted(0.8, 15)], 0.65),
        ("inference/latency_ms_p50", [Weighted(2, 100), Weighted(6, 300)], 5.0),
        ("inference/latency_ms_p99", [40.0, 9.0], 40.0),
    ],
)
def test_windows_are_merged_as_the_table_says(
    name: str, windows: list[float], merged: float
) -> None:
    """A window without a value, in between, takes no part."""
    first, second = ({name: value} for value in windows)
    assert merge_windows([first, {}, second]) == {name: pytest.approx(merged)}


def test_every_kind_and_rule_is_used_by_a_metric() -> None:
    """None is there for nothing."""
    assert {metric.kind for metric in METRICS} == set(Kind)
    assert {metric.over_ranks for metric in METRICS} == set(OverRanks)


@pytest.mark.parametrize("values", [(math.nan, 1.0), (1.0, math.nan, 2.0)])
def test_maximum_does_not_hide_nan(values: tuple[float, ...]) -> None:
    """A golden check that is not a number must not look well on account of another."""
    assert math.isnan(largest(values))


def report_of_games(returns: list[float]) -> dict[str, float]:
    """Returns what a rank reports after full games."""
    counters = Counters()
    for each in returns:
        counters.add_episode(Episode(env=0, episode_return=each, length=10), is_eval=False)
    return counters.report()


def report_of_lags(lags: list[float]) -> dict[str, float]:
    """Returns what a rank reports after steps of these lags."""
    metrics = Metrics()
    for each in lags:
        metrics.mean("policy/lag_mean", each)
    return metrics.drain()


def test_weights_come_from_what_reports() -> None:
    """Counters and metrics give each mean its weight; the merge is the mean over all."""
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
    """Through the ranks' store, and from a trainer process; other values stay as they are."""
    report = {"loss/total": Weighted(0.1, 3), "episodes": 7, "loss/value": math.inf}
    got = travel(report)
    assert got == report
    assert [weight_of(value) for value in got.values()] == [3, 1, 1]
    assert type(got["episodes"]) is int


def test_weighted_mean_is_a_plain_float_in_json() -> None:
    """metrics.jsonl has no weights."""
    assert json.dumps({"x": Weighted(2.5, 4)}) == '{"x": 2.5}'
