"""Makes docs/metrics.md from the table of metrics: python -m learner.reporting.metrics_page FILE

`make docs` calls it, and a test checks that the committed page is up to date.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import groupby
from pathlib import Path

import tyro

from learner.reporting.metric_kinds import Kind, Metric, OverRanks
from learner.reporting.metric_table import METRICS
from learner.reporting.prometheus import prometheus_name

_INTRODUCTION = """\
# Metrics

`make docs` makes this page from
[`learner/reporting/metric_table.py`](../learner/reporting/metric_table.py).

A run reports every `--report-every-s` seconds: one line of `metrics.jsonl`, one point of every
curve in TensorBoard (the returns once more under `1_returns/`, so that they come first), and the
values that Prometheus reads with `--metrics-port`
([security](security.md#metrics)). The window of a report is the time since the report before
it. A mean over nothing is left out of the report. A value that is not finite is `null` in
`metrics.jsonl`.

An agent may report terms of its own under `loss/`. A name for which the table has no row is
treated as a mean over updates.
"""

_KINDS = """\
## How values are merged

The kind of a metric says what one report holds, and how to merge the reports of several
windows, for example to draw fewer points. `metrics.jsonl` does not hold the weights of means;
over windows of the same length the plain mean comes close.
"""

_OVER_RANKS = """\
Learners that train together (`torchrun`) are called ranks. The first rank writes the reports
of all ranks:
"""

_PROMETHEUS = f"""\
Prometheus reads every metric as a gauge, with `seed_` in front and `_` for other characters:
`{prometheus_name("policy/lag_mean")}`. Metrics of the kinds `total` and `sum` are also counters
that begin with the process, for `rate()`: `{prometheus_name("process/env_steps")}_total`.
"""

_HEADERS = ("metric", "unit", "meaning", "kind", "over ranks", "a mean counts by")


def metrics_page() -> str:
    """Returns the page as Markdown."""
    kinds = ((_code(kind), kind.in_window, kind.over_windows) for kind in Kind)
    rules = ((_code(rule), rule.value) for rule in OverRanks)
    parts = [
        _INTRODUCTION,
        _KINDS,
        _table(("kind", "a report holds", "several windows make"), kinds),
        _OVER_RANKS,
        _table(("over ranks", "the value in the report"), rules),
        _PROMETHEUS,
    ]
    for section, metrics in groupby(METRICS, key=_section_of):
        parts += [f"## {section}\n", _table(_HEADERS, map(_row, metrics))]
    return "\n".join(parts)


def _section_of(metric: Metric) -> str:
    section, slash, _ = metric.name.partition("/")
    return section if slash else "The run"


def _row(metric: Metric) -> Sequence[str]:
    return (
        f"`{metric.name}`",
        metric.unit,
        metric.meaning,
        _code(metric.kind),
        _code(metric.over_ranks),
        metric.weight,
    )


def _code(member: Enum) -> str:
    return f"`{member.name.lower()}`"


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headers, ["---"] * len(headers), *rows]
    return "".join(f"| {' | '.join(map(_escaped, cells))} |\n" for cells in lines)


def _escaped(cell: str) -> str:
    """Returns `cell` with the characters escaped that end a cell or begin an HTML tag."""
    return cell.replace("|", "\\|").replace("<", "\\<")


def write_page(file: tyro.conf.Positional[Path]) -> None:
    """Writes the page about metrics to `file`."""
    file.write_text(metrics_page(), encoding="utf-8")


if __name__ == "__main__":
    tyro.cli(write_page)
