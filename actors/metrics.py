"""What an actor counts for Prometheus, served while `seed actor --metrics-port` runs.

Counted in the actor's main thread, read by the HTTP server's.
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
        """Begins to serve at `host`; port 0: any free one. Raises ConfigError."""
        registry = CollectorRegistry()
        self.env_steps = Counter(
            "seed_actor_env_steps", "actions applied to environments", registry=registry
        )
        self.episodes = Counter("seed_actor_episodes", "full games ended", registry=registry)
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
        """Where they are."""
        _LOG.info("metrics at %s", self.url)

    @contextlib.contextmanager
    def connected(self, num_envs: int) -> Iterator[None]:
        """While in the context a learner serves `num_envs` environments."""
        self.connections.inc()
        self.envs.set(num_envs)
        try:
            yield
        finally:
            self.envs.set(0)

    def close(self) -> None:
        """Stops to serve."""
        self._server.close()


class CountedConnection:
    """A connection to a learner whose steps and waits are counted."""

    def __init__(self, connection: PolicyConnection, metrics: ActorMetrics) -> None:
        self._connection = connection
        self._metrics = metrics

    def send(self, outputs: EnvOutputs) -> None:
        """Passes one step of a group on; only what followed from an action is an env step."""
        self._metrics.env_steps.inc(len(outputs.rewards) - int(outputs.is_first.sum()))
        self._metrics.episodes.inc(len(outputs.episodes))
        self._connection.send(outputs)

    def receive(self) -> tuple[int, np.ndarray]:
        """Passes an answer on."""
        began_at = time.perf_counter()
        answer = self._connection.receive()
        self._metrics.waiting_s.inc(time.perf_counter() - began_at)
        return answer
