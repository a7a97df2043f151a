"""Prometheus' settings and Grafana's dashboard name only metrics that exist."""

import json
import re
import urllib.request
from typing import Any

import pytest
import yaml

from learner.reporting.metric_table import METRICS
from learner.reporting.prometheus import PrometheusSink
from tests.support.tools import DOCKER, run_tool

MONITORING = DOCKER / "monitoring"
GRAFANA = MONITORING / "grafana"
DASHBOARD = json.loads((GRAFANA / "dashboards" / "seed.json").read_text())
RULES = yaml.safe_load((MONITORING / "rules.yml").read_text())["groups"][0]["rules"]
RECORDED = {rule["record"] for rule in RULES}
SCRAPED = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]


@pytest.fixture(scope="module")
def served() -> list[str]:
    """Returns Prometheus' names for a report of every metric; "ANY" stands for any text."""
    sink = PrometheusSink("127.0.0.1", 0)
    try:
        sink.write(0, {metric.name.replace("*", "ANY"): 1.0 for metric in METRICS})
        with urllib.request.urlopen(sink.url) as page:
            lines = page.read().decode().splitlines()
    finally:
        sink.close()
    return [line.split()[0] for line in lines if not line.startswith("#")]


def unknown_metrics(expression: str, served: list[str]) -> list[str]:
    """Returns the names in a query that the learner does not serve and no rule records."""
    pattern = "|".join(name.replace("ANY", ".+") for name in served)
    return [
        name
        for name in re.findall(r"seed_[a-z0-9_.+]+", expression)
        if name not in RECORDED and not re.fullmatch(pattern, name)
    ]


def queries() -> list[str]:
    """Returns every query of the dashboard."""
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


@pytest.mark.parametrize("expression", [*queries(), *(rule["expr"] for rule in RULES)])
def test_queries_name_metrics_that_exist(expression: str, served: list[str]) -> None:
    """A metric that is renamed or misspelt would show as an empty panel without an error."""
    assert "seed_" in expression
    assert unknown_metrics(expression, served) == []


@pytest.mark.parametrize("expression", queries())
def test_rates_are_taken_of_counters_alone(expression: str) -> None:
    """A resume sets a run's totals back, and rate() would count that as new steps."""
    rated = re.findall(r"\b(?:rate|irate|increase|resets)\(([a-z0-9_]+)", expression)
    assert all(re.fullmatch(r"seed_(process|actor)_\w+_total", name) for name in rated)


def test_unknown_metric_is_found(served: list[str]) -> None:
    """The check above can fail."""
    assert unknown_metrics("rate(seed_env_stepz[1m])", served) == ["seed_env_stepz"]


def test_dashboard_reads_the_provisioned_source() -> None:
    """Every panel and query names the data source that Grafana provisions."""
    (source,) = yaml.safe_load(
        (GRAFANA / "provisioning" / "datasources" / "prometheus.yml").read_text()
    )["datasources"]
    parts: list[dict[str, Any]] = DASHBOARD["panels"]
    parts = parts + [target for panel in parts for target in panel["targets"]]
    assert {part["datasource"]["uid"] for part in parts} == {source["uid"]}
    assert source["url"] == "http://prometheus:9090"


def test_dashboards_are_where_grafana_looks() -> None:
    """Provisioning, the mount and the home page agree on the directory."""
    provider = yaml.safe_load((GRAFANA / "provisioning" / "dashboards" / "seed.yml").read_text())[
        "providers"
    ][0]
    directory = provider["options"]["path"]
    assert f"./monitoring/grafana/dashboards:{directory}:ro" in COMPOSE["grafana"]["volumes"]
    home = COMPOSE["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{directory}/seed.json"


def test_panels_do_not_overlap() -> None:
    """Each cell of the grid belongs to one panel."""
    cells = [
        (x, y)
        for position in (panel["gridPos"] for panel in DASHBOARD["panels"])
        for x in range(position["x"], position["x"] + position["w"])
        for y in range(position["y"], position["y"] + position["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def test_prometheus_reads_where_the_learner_serves() -> None:
    """The scraped address is the learner's, on a network that both containers share."""
    (job,) = SCRAPED["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["learner:9090"]}]
    assert "--metrics-port 9090" in COMPOSE["learner"]["command"]
    assert set(COMPOSE["learner"]["networks"]) & set(COMPOSE["prometheus"]["networks"])
    mounted = [volume.partition(":")[0] for volume in COMPOSE["prometheus"]["volumes"]]
    assert {f"./monitoring/{name}" for name in ("prometheus.yml", *SCRAPED["rule_files"])} <= set(
        mounted
    )


def test_rules_compute_what_they_promise() -> None:
    """Prometheus' own tool runs the rules on series that the test file holds."""
    run_tool("promtool", "test", "rules", DOCKER.parent / "tests" / "docker" / "rules_test.yml")
