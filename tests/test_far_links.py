"""Acting over networks that are slow, lose packets or are cut, with a real actor."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from learner.serving.session import Timeouts
from seed.env_config import EnvConfig
from seed_bench.links.tcp_proxy import TcpProxy
from tests.support.counting_agent import CountingAgent
from tests.support.counting_env import ENV_ID
from tests.support.harness import TIMEOUT_S, ActingHarness

# The harness asks actors for two groups of two.
NUM_ENVS = 4
UNROLL_LENGTH = 5


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[ActingHarness]:
    """A learner that gives up on a connection after a second without a sign of life."""
    with ActingHarness(
        tmp_path,
        EnvConfig(env_id=ENV_ID),
        lambda spec: CountingAgent(UNROLL_LENGTH),
        timeouts=Timeouts(ping_every_s=0.5, ping_answer_s=0.5),
    ) as harness:
        yield harness


@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_latency_bounds_env_steps_by_those_in_flight(harness: ActingHarness, loss: float) -> None:
    """Each environment makes at most one step a round trip, and it does step."""
    delay_s = 0.025
    with TcpProxy(harness.address, delay_s=delay_s, loss=loss) as network:
        started_s = time.monotonic()
        with harness.actor(address=network.address):
            harness.wait_for_more(12)
        round_trips = (time.monotonic() - started_s) / (2 * delay_s)
    assert 0 < harness.counters.env_steps <= NUM_ENVS * (round_trips + 1)


def test_stream_survives_a_cut_shorter_than_the_learners_timeout(tmp_path: Path) -> None:
    """What was under way arrives late, and the actor does not notice the cut."""
    with (
        ActingHarness(
            tmp_path, EnvConfig(env_id=ENV_ID), lambda spec: CountingAgent(UNROLL_LENGTH)
        ) as harness,
        TcpProxy(harness.address) as network,
        harness.actor(address=network.address),
    ):
        harness.wait_for_more(4)
        network.cut()
        threading.Event().wait(1.0)
        network.heal()
        harness.wait_for_more(40)
        assert harness.num_tasks == 1


def test_actor_comes_back_after_a_long_cut(harness: ActingHarness) -> None:
    """The learner drops the actor and serves others; the actor then starts fresh episodes."""
    with (
        TcpProxy(harness.address) as network,
        harness.actor("--max-backoff-s", "0.5", address=network.address),
    ):
        harness.wait_for_more(4)
        network.cut()
        harness.wait_for_connected(0)
        with harness.actor():
            harness.wait_for_more(4)
        network.heal()
        harness.wait_for_connected(NUM_ENVS)
        harness.wait_for_more(40)
        assert harness.num_tasks == 3


def test_actor_comes_back_when_its_connection_is_reset(harness: ActingHarness) -> None:
    """It comes back at once, after each reset."""
    with (
        TcpProxy(harness.address) as network,
        harness.actor("--max-backoff-s", "0.5", address=network.address),
    ):
        for _ in range(2):
            harness.wait_for_connected(NUM_ENVS)
            harness.wait_for_more(4)
            network.reset()
            harness.wait_for_connected(0)
        harness.wait_for_more(4)


@pytest.fixture
def echo() -> Iterator[str]:
    """The address of a server that sends back what it receives."""

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            while data := connection.recv(1 << 16):
                connection.sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


def connect(network: TcpProxy) -> socket.socket:
    """Returns a connection through the proxy."""
    host, _, port = network.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=TIMEOUT_S)


@pytest.mark.parametrize("loss", [0.0, 0.5])
def test_proxy_changes_when_bytes_arrive_and_nothing_else(echo: str, loss: float) -> None:
    """All bytes arrive, in order, and not before a round trip."""
    sent = bytes(range(256)) * 2_000
    with TcpProxy(echo, delay_s=0.05, loss=loss) as network, connect(network) as connection:
        started_s = time.monotonic()
        threading.Thread(target=connection.sendall, args=(sent,), daemon=True).start()
        received = connection.recv(1 << 20)
        assert time.monotonic() - started_s >= 0.1
        while len(received) < len(sent):
            received += connection.recv(1 << 20)
    assert received == sent


def test_proxy_holds_back_everything_during_a_cut(echo: str) -> None:
    """There is silence and no error, and what was sent meanwhile arrives after the cut."""
    with TcpProxy(echo) as network, connect(network) as connection:
        connection.sendall(b"before")
        assert connection.recv(100) == b"before"
        network.cut()
        connection.sendall(b"during")
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(100)
        network.heal()
        connection.settimeout(TIMEOUT_S)
        assert connection.recv(100) == b"during"


def test_proxy_resets_connections(echo: str) -> None:
    """Both ends see the reset."""
    with TcpProxy(echo) as network, connect(network) as connection:
        connection.sendall(b"x")
        assert connection.recv(100) == b"x"
        network.reset()
        with pytest.raises(ConnectionError):
            while connection.recv(100):
                pass
            raise ConnectionResetError  # an orderly end is accepted too


def test_proxy_passes_on_a_reset() -> None:
    """The other side dies with unread bytes, so the end is a reset and not an orderly one."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        TcpProxy(f"127.0.0.1:{server.getsockname()[1]}") as network,
        connect(network) as connection,
    ):
        connection.sendall(b"x" * 100)
        dying, _ = server.accept()
        assert dying.recv(1) == b"x"
        dying.close()
        with pytest.raises(ConnectionError):
            while connection.recv(100):
                pass
            raise ConnectionResetError  # an orderly end is accepted too
