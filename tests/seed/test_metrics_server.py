"""Metrics over HTTP, as Prometheus reads them."""

import urllib.error
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, Gauge

from seed.errors import ConfigError
from seed.metrics_server import MetricsServer


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_registry_is_served_at_the_url_until_close(host: str) -> None:
    """Only what is in it: not the library's own metrics of the process."""
    registry = CollectorRegistry()
    Gauge("height", "Of something.", registry=registry).set(3)
    try:
        server = MetricsServer(registry, host, 0)
    except ConfigError:
        pytest.skip(f"this machine has no {host}")
    with urllib.request.urlopen(server.url) as answer:
        text = answer.read().decode()
    assert "height 3.0" in text and "process_" not in text
    server.close()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(server.url)


def test_port_in_use_is_refused() -> None:
    """Naming the flag, the host and the port."""
    server = MetricsServer(CollectorRegistry(), "127.0.0.1", 0)
    port = int(server.url.rpartition(":")[2].partition("/")[0])
    with pytest.raises(ConfigError, match=f"^metrics_port: expected .* got 127.0.0.1:{port} "):
        MetricsServer(CollectorRegistry(), "127.0.0.1", port)
    server.close()
