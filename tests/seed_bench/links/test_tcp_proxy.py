"""The proxy that stands in for a network: delay, loss, cuts and resets of one connection.

What TCP and an actor make of them is tested in tests/test_far_networks.py.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from seed_bench.links.tcp_proxy import TcpProxy

TIMEOUT_S = 30.0
DELAY_S = 0.05


@pytest.fixture
def echo() -> Iterator[str]:
    """The address of a server that sends back what it receives, to one client."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                while data := connection.recv(100):
                    connection.sendall(data)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


def _connect(proxy: TcpProxy) -> socket.socket:
    host, _, port = proxy.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=TIMEOUT_S)


def _round_trip_s(connection: socket.socket) -> float:
    started_s = time.monotonic()
    connection.sendall(b"hello")
    assert connection.recv(100) == b"hello"
    return time.monotonic() - started_s


def test_a_round_trip_takes_twice_the_delay(echo: str) -> None:
    """Bytes come unchanged."""
    with TcpProxy(echo, delay_s=DELAY_S) as proxy, _connect(proxy) as connection:
        assert _round_trip_s(connection) >= 2 * DELAY_S


def test_bytes_that_are_lost_come_late(echo: str) -> None:
    """They are sent again after Linux's shortest timeout, in each direction."""
    with TcpProxy(echo, loss=1.0) as proxy, _connect(proxy) as connection:
        assert _round_trip_s(connection) >= 2 * 0.2


def test_a_reset_closes_the_connection(echo: str) -> None:
    """The client sees its end at once."""
    with TcpProxy(echo) as proxy, _connect(proxy) as connection:
        _round_trip_s(connection)
        proxy.reset()
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(100) == b""
