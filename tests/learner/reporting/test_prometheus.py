"""Reports as Prometheus reads them: names, types, help, and the values of a scrape."""

import math
import urllib.request
from collections.abc import Iterator
from socket import create_server

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_text

from learner.reporting.metric_table import METRICS, metric_of
from learner.reporting.prometheus import PrometheusSink, prometheus_name
from seed.errors import ConfigError

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


@pytest.fixture
def sink() -> Iterator[PrometheusSink]:
    """A sink that serves at a port of its own."""
    sink = PrometheusSink("127.0.0.1", 0)
    yield sink
    sink.close()


def get(sink: PrometheusSink, accept: str = "text/plain") -> str:
    """Returns the body of a scrape."""
    request = urllib.request.Request(sink.url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode()


def samples(sink: PrometheusSink) -> dict[str, float]:
    """Returns name -> value of a scrape."""
    return {s.name: s.value for family in parse_text(get(sink)) for s in family.samples}


def test_report_is_served_under_prometheus_names(sink: PrometheusSink) -> None:
    """Names start with seed_, "_" replaces forbidden characters, and each is a gauge."""
    sink.write(10, {"loss/value": 0.5, "env_steps_per_s": 960.0, "loss/total": math.nan})
    values = samples(sink)
    assert math.isnan(values.pop("seed_loss_total"))
    assert values == {"seed_loss_value": 0.5, "seed_env_steps_per_s": 960.0}
    assert {family.type for family in parse_text(get(sink))} == {"gauge"}


def test_help_is_meaning_and_unit_of_the_table(sink: PrometheusSink) -> None:
    """They are found by name or pattern, and a name without a row is served too."""
    sink.write(0, {"policy/lag_max": 1.0, "loss/value": 1.0, "unheard/of": 1.0})
    texts = {family.name: family.documentation for family in parse_text(get(sink))}
    assert texts == {
        "seed_policy_lag_max": f"{metric_of('policy/lag_max').meaning} [learner steps]",
        "seed_loss_value": metric_of("loss/*").meaning,
        "seed_unheard_of": "unheard/of",
    }


def test_totals_also_count_from_the_processs_first_report(sink: PrometheusSink) -> None:
    """The total of a resumed run is no counter: rate() would count its fall as new steps."""
    sink.write(1_000_000, {"env_steps": 1_000_000.0})
    sink.write(1_000_960, {"env_steps": 1_000_960.0, "learner_steps": 7.0})
    sink.write(1_001_920, {"env_steps": 1_001_920.0, "learner_steps": 9.0})
    assert samples(sink) == {
        "seed_env_steps": 1_001_920.0,
        "seed_process_env_steps_total": 1_920.0,
        "seed_learner_steps": 9.0,
        "seed_process_learner_steps_total": 2.0,
    }
    types = {family.name: family.type for family in parse_text(get(sink))}
    assert types["seed_process_env_steps"] == "counter"
    assert types["seed_env_steps"] == "gauge"


def test_sums_of_windows_also_count_from_the_processs_start(sink: PrometheusSink) -> None:
    """A scrape may miss a report, and a window without refusals reports 0."""
    sink.write(1, {"actors/refused": 2.0})
    sink.write(2, {"actors/refused": 3.0})
    assert samples(sink) == {
        "seed_actors_refused": 3.0,
        "seed_process_actors_refused_total": 5.0,
    }
    sink.write(3, {})
    assert samples(sink) == {
        "seed_actors_refused": 0.0,
        "seed_process_actors_refused_total": 5.0,
    }


def test_value_stays_until_there_is_a_new_one(sink: PrometheusSink) -> None:
    """A window without a game leaves no gap, since scrapes are rarer than reports."""
    assert samples(sink) == {}
    sink.write(1, {"episode/return_mean": -3.0, "queue/unrolls": 1.0})
    sink.write(2, {"queue/unrolls": 2.0})
    assert samples(sink) == {"seed_episode_return_mean": -3.0, "seed_queue_unrolls": 2.0}


def test_every_metric_has_a_name_of_its_own_in_both_formats(sink: PrometheusSink) -> None:
    """OpenMetrics is stricter about names."""
    names = [metric.name.replace("*", "x") for metric in METRICS]
    assert len({prometheus_name(name) for name in names}) == len(names)
    sink.write(0, dict.fromkeys(names, 1.0))
    families = [family.name for family in parse_open(get(sink, OPEN_METRICS))]
    assert len(families) == len(set(families)) > len(names)


def test_port_that_is_taken_is_refused() -> None:
    """The error names the flag."""
    with create_server(("127.0.0.1", 0)) as owner:
        port = owner.getsockname()[1]
        with pytest.raises(ConfigError, match=f"^metrics_port: .*got 127.0.0.1:{port} "):
            PrometheusSink("127.0.0.1", port)


def test_address_of_another_machine_is_refused() -> None:
    """A host name that does not resolve is also refused."""
    for host in ("203.0.113.7", "no-such-host.invalid"):
        with pytest.raises(ConfigError, match=f"^metrics_port: .*got {host}:0 "):
            PrometheusSink(host, 0)


def test_ipv6_is_served(sink: PrometheusSink) -> None:
    """Its address is written in brackets."""
    six = PrometheusSink("::1", 0)
    assert six.url.startswith("http://[::1]:")
    six.write(0, {"x": 1.0})
    assert samples(six) == {"seed_x": 1.0}
    six.close()
