"""Many reports made into one: those of several windows, or of several learners.

`learner/reporting/metric_table.py` says how each metric is merged. Called by the thread that
reports. Torch-free.
"""

import json
import math
from collections.abc import Sequence
from typing import assert_never

from learner.reporting.metric_kinds import Kind, OverRanks
from learner.reporting.metric_table import metric_of


class Weighted(float):
    """A mean, and its weight when it is merged with other means.

    To sinks and files it is a plain float. Arithmetic returns plain floats, which weigh 1.
    """

    weight: float
    """The weight, in the unit that the table names: games, steps, updates. Above 0."""

    def __new__(cls, value: float, weight: float) -> "Weighted":
        """Returns `value` as a float that carries `weight`."""
        assert weight > 0, "a mean over nothing is left out of the report"
        weighted = super().__new__(cls, value)
        weighted.weight = weight
        return weighted

    def __reduce__(self) -> tuple[type["Weighted"], tuple[float, float]]:
        """Tells pickle how to make the value again: reports come from the trainer process."""
        return Weighted, (float(self), self.weight)


def weight_of(value: float) -> float:
    """Returns the weight that travels with `value`: 1 if there is none."""
    return value.weight if isinstance(value, Weighted) else 1.0


def largest(values: Sequence[float]) -> float:
    """Returns the maximum; NaN if any value is NaN, since a maximum that hides NaN hides a bug."""
    return max(values, key=lambda value: (math.isnan(value), value))


def smallest(values: Sequence[float]) -> float:
    """Returns the minimum; NaN if any value is NaN."""
    return min(values, key=lambda value: (not math.isnan(value), value))


def root_mean_square(values: Sequence[float]) -> Weighted:
    """Returns the root of the weighted mean of the squares of at least one value."""
    squares = weighted_mean([Weighted(value**2, weight_of(value)) for value in values])
    return Weighted(math.sqrt(squares), squares.weight)


def weighted_mean(values: Sequence[float]) -> Weighted:
    """Returns the mean of at least one value. Its weight is the sum of their weights."""
    total = sum(weight_of(value) for value in values)
    return Weighted(sum(value * weight_of(value) for value in values) / total, total)


def merge_windows(reports: Sequence[dict[str, float]]) -> dict[str, float]:
    """Returns one report for several windows of one learner.

    Args:
      reports: oldest first. A name need not be in all of them.
    """
    return {
        name: _over_windows(metric_of(name).kind, values)
        for name, values in _by_name(reports).items()
    }


def merge_ranks(reports: Sequence[dict[str, float]]) -> dict[str, float]:
    """Returns one report for several learners that train together.

    Args:
      reports: by rank, at least one. A name need not be in all of them, but what all ranks
        count alike is only taken from the first.
    """
    return {
        name: _over_ranks(metric_of(name).over_ranks, values)
        for name, values in _by_name(reports).items()
        if name in reports[0] or metric_of(name).over_ranks is not OverRanks.SAME
    }


def encode_report(report: dict[str, float]) -> str:
    """Returns JSON of `report`: name -> value, or [value, weight] of a weighted mean."""
    return json.dumps(
        {
            name: [value, value.weight] if isinstance(value, Weighted) else value
            for name, value in report.items()
        }
    )


def decode_report(text: str | bytes) -> dict[str, float]:
    """Returns the report from which `encode_report` made `text`."""
    return {
        name: Weighted(*value) if isinstance(value, list) else value
        for name, value in json.loads(text).items()
    }


def _by_name(reports: Sequence[dict[str, float]]) -> dict[str, list[float]]:
    """Returns name -> the values present, in the order of the reports."""
    names = dict.fromkeys(name for report in reports for name in report)
    return {name: [report[name] for report in reports if name in report] for name in names}


def _over_windows(kind: Kind, values: Sequence[float]) -> float:
    match kind:
        case Kind.TOTAL | Kind.LEVEL:
            return values[-1]
        case Kind.SUM:
            return sum(values)
        case Kind.MIN:
            return smallest(values)
        case Kind.MAX | Kind.P99:
            return largest(values)
        case Kind.MEAN | Kind.MEDIAN:
            return weighted_mean(values)
        case Kind.STD:
            return root_mean_square(values)
        case _:
            assert_never(kind)


def _over_ranks(rule: OverRanks, values: Sequence[float]) -> float:
    match rule:
        case OverRanks.SAME:
            return values[0]
        case OverRanks.ADD:
            return sum(values)
        case OverRanks.MIN:
            return smallest(values)
        case OverRanks.MAX:
            return largest(values)
        case OverRanks.MEAN:
            return weighted_mean(values)
        case OverRanks.ROOT_MEAN_SQUARE:
            return root_mean_square(values)
        case _:
            assert_never(rule)
