"""The table of metrics: every name that the code reports has a row, of the right kind."""

import ast
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pytest

from learner.reporting.metric_kinds import Kind, OverRanks
from learner.reporting.metric_table import METRICS, is_known, metric_of

ROOT = Path(__file__).parents[3]
# The kinds of metric that each method of `Metrics` may write.
KINDS = {
    "mean": {Kind.MEAN},
    "min": {Kind.MIN},
    "max": {Kind.MAX},
    "sum": {Kind.SUM},
    "gauge": {Kind.LEVEL},
    "percentiles": {Kind.MEDIAN, Kind.P99},
}
# Texts that look like a metric's name and are a column of `seed bench`.
OTHERS = {"envs/message"}
SECTIONS = {metric.name.partition("/")[0] for metric in METRICS if "/" in metric.name}
LOOKS_LIKE_A_METRIC = re.compile(rf"({'|'.join(sorted(SECTIONS))})/[a-z0-9_]+")


class Literal(NamedTuple):
    """A text in the source that names a metric."""

    text: str
    method: str
    """The method that the text is the first argument of; "" if it is none of `Metrics`."""
    place: str


def literals_in(source: str, place: str = "") -> Iterator[Literal]:
    """Yields the names of metrics in `source`: arguments of `Metrics`, and texts like them."""
    tree = ast.parse(source)
    methods = {
        id(call.args[0]): call.func.attr
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            method = methods.get(id(node), "")
            method = method if method in KINDS else ""
            looks_so = LOOKS_LIKE_A_METRIC.fullmatch(node.value) and node.value not in OTHERS
            if method or looks_so:
                yield Literal(node.value, method, f"{place}:{node.lineno}")


def literals_of(*packages: str) -> list[Literal]:
    """Returns the names of metrics in all files of the packages."""
    return [
        literal
        for package in packages
        for file in sorted((ROOT / package).rglob("*.py"))
        for literal in literals_in(file.read_text(encoding="utf-8"), str(file.relative_to(ROOT)))
    ]


def names_of(literal: Literal) -> list[str]:
    """Returns the names under which a report holds the values of a literal."""
    both = literal.method == "percentiles" or literal.text == "inference/latency_ms"
    return [f"{literal.text}_p50", f"{literal.text}_p99"] if both else [literal.text]


def wrong(literal: Literal) -> list[str]:
    """Returns the fault of a literal: no row, or a row of another kind."""
    names = names_of(literal)
    faults = [f"{literal.place} {name} has no row" for name in names if not is_known(name)]
    kinds = {metric_of(name).kind for name in names}
    if literal.method and not faults and kinds != KINDS[literal.method]:
        faults.append(f"{literal.place} {literal.text} is not for {literal.method}")
    return faults


def test_every_name_in_the_code_has_a_row_and_its_kind() -> None:
    """A name that is misspelt, or given to the wrong method, would be merged wrongly."""
    literals = literals_of("learner", "seed_bench")
    assert {literal.method for literal in literals} == {*KINDS, ""}
    assert [fault for literal in literals for fault in wrong(literal)] == []


def test_agents_report_means() -> None:
    """The trainer takes the mean over updates of all metrics of an agent."""
    names = {literal.text for literal in literals_of("learner/agents")}
    assert {"loss/total", "policy/q_max"} <= names
    assert [name for name in names if metric_of(name).kind is not Kind.MEAN] == []


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("metrics.mean('policy/lag_mean', 1)", ""),
        ("metrics.mean('policy/lag_max', 1)", "policy/lag_max is not for mean"),
        ("metrics.gauge('queue/unrols', 1)", "queue/unrols has no row"),
        ("metrics.sum('refused', 1)", "refused has no row"),
        ("report = {'replay/bytes': 1}", "replay/bytes has no row"),
        ("metrics.percentiles('inference/latency_ms', x)", ""),
        ("metrics.percentiles('inference/wait_ms', x)", "inference/wait_ms_p50 has no row"),
    ],
)
def test_wrong_name_or_kind_is_found(source: str, fault: str) -> None:
    """The checks above can fail."""
    found = [fault for literal in literals_in(source) for fault in wrong(literal)]
    assert found[:1] == ([f":1 {fault}"] if fault else [])


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("env_steps", True),
        ("loss/value", True),
        ("time/trainer_wait_share", True),
        ("env_steps_total", False),
        ("loss", False),
    ],
)
def test_patterns_cover_families_only(name: str, known: bool) -> None:
    """A pattern does not hide a misspelt name of another family."""
    assert is_known(name) is known


def test_own_row_goes_before_patterns_and_narrow_patterns_before_wide_ones() -> None:
    """All terms of another package's loss are means, even if a name ends in _max."""
    assert metric_of("loss/non_finite").kind is Kind.SUM
    assert metric_of("loss/kl_max") == metric_of("loss/*")
    assert metric_of("loss/kl_max").over_ranks is OverRanks.MEAN
    assert metric_of("time/server_busy_share").over_ranks is OverRanks.MAX
    assert metric_of("time/trainer_wait_share").over_ranks is OverRanks.MEAN


def test_name_without_a_row_is_a_mean() -> None:
    """The trainer reports all metrics of another package's agent as means."""
    unlisted = metric_of("kl/approximate")
    assert (unlisted.kind, unlisted.over_ranks) == (Kind.MEAN, OverRanks.MEAN)
    assert unlisted.help == "kl/approximate"


def test_rows_are_complete_and_in_sections() -> None:
    """Names are unique, and a mean says what weighs its values."""
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        is_mean = metric.kind in (Kind.MEAN, Kind.STD) or metric.over_ranks is OverRanks.MEAN
        assert bool(metric.weight) is is_mean, metric.name
    sections = [key for key, _ in groupby(n.partition("/")[0] for n in names if "/" in n)]
    assert len(set(sections)) == len(sections)
