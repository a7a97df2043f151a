"""An actor's counters, scraped from an actor at work."""

import threading
import urllib.request
from pathlib import Path

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from actors.client import PolicyStream, open_channel
from actors.envs import make_group
from actors.loop import run_loop
from actors.metrics import ActorMetrics, CountedConnection
from seed.env_config import EnvConfig
from seed.pb import inference_pb2 as pb
from seed.wire import EnvOutputs, Hello
from tests.actors.fake_learner import FakeLearner, serving

TIMEOUT_S = 10
STEPS = 20


def scrape(url: str) -> dict[str, float]:
    """Returns name -> value, without the times at which the metrics were made."""
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        found = {s.name: s.value for family in families for s in family.samples}
    return {name: value for name, value in found.items() if not name.endswith("_created")}


def test_steps_games_and_waits_are_counted(tmp_path: Path) -> None:
    """Only actions count as steps; the row that starts an episode is no step."""
    stop = threading.Event()
    seen: list[dict[str, float]] = []
    metrics = ActorMetrics("127.0.0.1", 0)

    def policy(outputs: EnvOutputs) -> np.ndarray:
        if len(learner.outputs) == STEPS:
            seen.append(scrape(metrics.url))
            stop.set()
        return np.zeros(2, np.int64)

    learner = FakeLearner(policy=policy)
    group = make_group(EnvConfig(env_id="seed/Catch-v0"), index=0, num_envs=2, base_seed=1)
    hello = Hello(run_id="run", role=pb.ROLE_TRAIN, group_sizes=(2,), spec=group.spec)
    address = f"unix:{tmp_path}/learner.sock"
    with (
        serving(learner, address),
        open_channel(address, hello) as channel,
        PolicyStream(channel, hello, TIMEOUT_S) as stream,
        metrics.connected(2),
    ):
        run_loop([group], CountedConnection(stream, metrics), stop)
    (found,) = seen
    rows = learner.outputs[:STEPS]
    assert found.pop("seed_actor_waiting_seconds_total") > 0
    assert found == {
        "seed_actor_env_steps_total": sum(int((~row.is_first).sum()) for row in rows),
        "seed_actor_env_failures_total": 0,
        "seed_actor_episodes_total": sum(len(row.episodes) for row in rows),
        "seed_actor_connections_total": 1,
        "seed_actor_envs": 2,
    }
    assert found["seed_actor_episodes_total"] > 0
    assert scrape(metrics.url)["seed_actor_envs"] == 0
    metrics.close()


class Silent:
    """A connection to nothing."""

    def send(self, outputs: EnvOutputs) -> None:
        """Drops a step."""

    def receive(self) -> tuple[int, np.ndarray]:
        """Is not called."""
        raise NotImplementedError


def test_failures_of_environments_are_counted() -> None:
    """Each failure travels with the step in which it happened, and is counted once."""
    env_id = "tests.actors.odd_envs:odd/Fragile-v0"
    config = EnvConfig(env_id=env_id, env_kwargs='{"fails_at": 2}')
    group = make_group(config, index=0, num_envs=3, base_seed=1)
    metrics = ActorMetrics("127.0.0.1", 0)
    connection = CountedConnection(Silent(), metrics)
    rows = [group.reset(), *(group.step(np.zeros(3, np.int64)) for _ in range(5))]
    for row in rows:
        connection.send(row)
    found = scrape(metrics.url)
    metrics.close()
    assert [row.failures for row in rows] == [0, 0, 3, 0, 0, 3]
    assert found["seed_actor_env_failures_total"] == 6
