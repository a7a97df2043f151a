"""An HTTP server for Prometheus to read a process's metrics from.

Used by both sides, from the thread that starts it to the one that closes it.
"""

from prometheus_client import CollectorRegistry, start_http_server

from seed.errors import ConfigError, expected


class MetricsServer:
    """Serves a registry at http://host:port/metrics on threads of its own."""

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        """Starts serving.

        Args:
          registry: what to serve; the library's global registry would add its own metrics.
          host: address of this machine.
          port: 0: any free one.

        Raises:
          ConfigError: the address cannot be bound.
        """
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            got = f"{host}:{port} ({error.strerror})"
            wanted = "a host and port of this machine that are free"
            raise ConfigError(expected("metrics_port", wanted, got)) from error
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.server_port}/metrics"

    def close(self) -> None:
        """Stops serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
