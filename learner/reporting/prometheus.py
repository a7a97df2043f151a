"""The newest report for Prometheus, served over HTTP at /metrics.

`write` and `close` are called by the thread that reports; a scrape is answered on
threads of the library's own, from the report as it is then.
"""

import logging
import re
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from learner.reporting.metrics import TOTALS, meaning_of
from seed.metrics_server import MetricsServer

_LOG = logging.getLogger(__name__)


class PrometheusSink(Collector):
    """Serves every metric of the reports under a name of its own; see `prometheus_name`.

    A value stays until a report brings a new one. What is a total of the run comes twice:

        seed_env_steps                gauge    as in metrics.jsonl; a resume may set it back
        seed_process_env_steps_total  counter  since the process's first report, for rate()
    """

    def __init__(self, host: str, port: int) -> None:
        """Begins to serve at `host`; port 0: any free one. Raises ConfigError."""
        # Both are replaced, never changed: a scrape may be reading them.
        self._report: dict[str, float] = {}
        self._first_totals: dict[str, float] = {}
        registry = CollectorRegistry()
        registry.register(self)
        self._server = MetricsServer(registry, host, port)
        self.url = self._server.url
        """Where they are."""
        _LOG.info("metrics at %s", self.url)

    def write(self, step: int, report: dict[str, float]) -> None:
        """Takes over what `report` holds; it has its own env_steps."""
        del step
        totals = {name: report[name] for name in TOTALS & report.keys()}
        self._first_totals = totals | self._first_totals
        self._report = self._report | report

    def close(self) -> None:
        """Stops to serve."""
        self._server.close()

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics as they are now; called by the library for each scrape."""
        first_totals = self._first_totals
        for name, value in self._report.items():
            meaning = meaning_of(name) or name
            yield GaugeMetricFamily(prometheus_name(name), meaning, value)
            if name in first_totals:
                since = f"{meaning}; here since the process's first report"
                grown = value - first_totals[name]
                yield CounterMetricFamily(
                    f"{prometheus_name('process/' + name)}_total", since, grown
                )


def prometheus_name(name: str) -> str:
    """Returns "seed_" and `name`, with "_" for whatever a Prometheus name cannot hold."""
    return "seed_" + re.sub(r"[^a-zA-Z0-9_]", "_", name)
