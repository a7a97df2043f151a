"""The counters of one actor, for Prometheus (`seed actor --metrics-port`).

The actor's main thread counts; a thread of the HTTP server reads.
"""

import contextlib
import logging
import time
from collections.abc import Iterator

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge

from actors.loop import PolicyConnection
from seed.metrics_server import MetricsServer
from seed.wire import EnvOutputs

_LOG = logging.getLogger(__name__)


class ActorMetrics:
    """Counters of one actor process, at http://host:port/metrics until `close`."""

    def __init__(self, host: str, port: int) -> None:
        """Starts serving at `host` and `port`; port 0 takes any free one.

        Raises:
          ConfigError: the address cannot be used.
        """
        registry = CollectorRegistry()
        self.env_steps = Counter(
            "seed_actor_env_steps", "actions applied to environments", registry=registry
        )
        self.episodes = Counter("seed_actor_episodes", "full games ended", registry=registry)
        self.env_failures = Counter(
            "seed_actor_env_failures",
            "environments that failed, and were replaced or had their episode cut",
            registry=registry,
        )
        self.waiting_s = Counter(
            "seed_actor_waiting_seconds",
            "seconds spent waiting for actions, with no environment to step",
            registry=registry,
        )
        self.connections = Counter(
            "seed_actor_connections", "streams that a learner has welcomed", registry=registry
        )
        self.envs = Gauge(
            "seed_actor_envs", "environments that a learner serves now", registry=registry
        )
        self._server = MetricsServer(registry, host, port)
        self.url = self._server.url
        """Address of the counters."""
        _LOG.info("metrics at %s", self.url)

    @contextlib.contextmanager
    def connected(self, num_envs: int) -> Iterator[None]:
        """Counts a stream that a learner welcomed, and `num_envs` environments until its end."""
        self.connections.inc()
        self.envs.set(num_envs)
        try:
            yield
        finally:
            self.envs.set(0)

    def close(self) -> None:
        """Stops serving the counters."""
        self._server.close()


class CountedConnection:
    """A connection to a learner whose steps and waits are counted."""

    def __init__(self, connection: PolicyConnection, metrics: ActorMetrics) -> None:
        self._connection = connection
        self._metrics = metrics

    def send(self, outputs: EnvOutputs) -> None:
        """Sends one step of a group; a row that follows a reset is no env step."""
        self._metrics.env_steps.inc(len(outputs.rewards) - int(outputs.is_first.sum()))
        self._metrics.episodes.inc(len(outputs.episodes))
        self._metrics.env_failures.inc(outputs.failures)
        self._connection.send(outputs)

    def receive(self) -> tuple[int, np.ndarray]:
        """Waits for an answer, and counts the seconds."""
        began_at = time.perf_counter()
        answer = self._connection.receive()
        self._metrics.waiting_s.inc(time.perf_counter() - began_at)
        return answer
