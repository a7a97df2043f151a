"""The newest report for Prometheus, served over HTTP at /metrics.

The thread that reports calls `write` and `close`. The library's own threads answer each
scrape from the newest report.
"""

import logging
import re
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from learner.reporting.metric_kinds import Kind
from learner.reporting.metric_table import metric_of
from seed.metrics_server import MetricsServer

_LOG = logging.getLogger(__name__)


class PrometheusSink(Collector):
    """Serves every metric of the reports under a name of its own; see `prometheus_name`.

    Each is a gauge. A gauge keeps its value until a report brings a new one, but the sum of a
    window is 0 if the newest report does not have it. Totals of the run and sums of windows
    are also served as counters that begin with the process, for rate():

        seed_env_steps                     gauge    as in metrics.jsonl; a resume may set it back
        seed_process_env_steps_total       counter  since the process's first report
        seed_actors_refused                gauge    in the window of the newest report
        seed_process_actors_refused_total  counter  since the process began
    """

    def __init__(self, host: str, port: int) -> None:
        """Starts serving at `host`; port 0 takes any free port. Raises ConfigError."""
        # Both are replaced, never changed: a scrape may be reading them.
        self._report: dict[str, float] = {}
        self._counts: dict[str, float] = {}
        self._first_totals: dict[str, float] = {}
        registry = CollectorRegistry()
        registry.register(self)
        self._server = MetricsServer(registry, host, port)
        self.url = self._server.url
        """URL of the metrics."""
        _LOG.info("metrics at %s", self.url)

    def write(self, step: int, report: dict[str, float]) -> None:
        """Takes over the values of `report`, whose own env_steps replace `step`."""
        del step
        counts = {name: self._count(name, value) for name, value in report.items()}
        counted = {name: count for name, count in counts.items() if count is not None}
        no_news = {name: 0.0 for name in self._report if metric_of(name).kind is Kind.SUM}
        self._counts = self._counts | counted
        self._report = self._report | no_news | report

    def close(self) -> None:
        """Stops serving."""
        self._server.close()

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics as they are now; the library calls it for each scrape."""
        counts = self._counts
        for name, value in self._report.items():
            text = metric_of(name).help
            yield GaugeMetricFamily(prometheus_name(name), text, value)
            if name in counts:
                since = f"{text}; here since this process began to report"
                counter = f"{prometheus_name('process/' + name)}_total"
                yield CounterMetricFamily(counter, since, counts[name])

    def _count(self, name: str, value: float) -> float | None:
        """Returns what a counter shows once `value` is reported; None if nothing is counted."""
        match metric_of(name).kind:
            case Kind.TOTAL:
                return value - self._first_totals.setdefault(name, value)
            case Kind.SUM:
                return self._counts.get(name, 0.0) + value
            case _:
                return None


def prometheus_name(name: str) -> str:
    """Returns "seed_" and `name`, with "_" for each character that Prometheus does not take."""
    return "seed_" + re.sub(r"[^a-zA-Z0-9_]", "_", name)
