"""What a kind and a metric say about themselves."""

import pytest

from learner.reporting.metric_kinds import Kind, Metric, OverRanks


@pytest.mark.parametrize("kind", Kind)
def test_only_totals_and_levels_stand_until_the_next_value(kind: Kind) -> None:
    """All other kinds are of one window."""
    assert kind.stands is (kind.name in ("TOTAL", "LEVEL"))


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_says_how_it_is_taken_and_merged(kind: Kind) -> None:
    """The page about metrics shows both sentences."""
    assert kind.in_window and kind.over_windows


@pytest.mark.parametrize(("unit", "expected"), [("nats", "entropy [nats]"), ("", "entropy")])
def test_help_holds_the_unit_if_there_is_one(unit: str, expected: str) -> None:
    """TensorBoard and Prometheus show it beside the values."""
    assert Metric("x", unit, "entropy", Kind.MEAN, OverRanks.MEAN, "updates").help == expected
