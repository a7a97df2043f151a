"""The networks between measured runs: their effect on bytes and packets, and the table."""

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seed.errors import ConfigError
from seed_bench.links import packet_link
from seed_bench.links.packet_link import PacketLink
from seed_bench.links.proxy_link import ProxyLink
from seed_bench.studies.links import NetworksArgs, tables

TIMEOUT_S = 30.0

# Sends back what it receives, and waits for the rest of each line.
ECHO_SERVER = """
import socket, sys
with socket.create_server((sys.argv[1], 0)) as server:
    print(server.getsockname()[1], flush=True)
    connection, _ = server.accept()
    while data := connection.recv(100):
        connection.sendall(data)
"""
CLIENT = """
import socket, sys, time
host, _, port = sys.argv[1].rpartition(":")
with socket.create_connection((host, int(port))) as connection:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for line in sys.stdin:
        started_s = time.monotonic()
        connection.sendall(line.encode())
        assert connection.recv(100) == line.encode()
        print(time.monotonic() - started_s, flush=True)
"""

needs_rights = pytest.mark.skipif(
    not packet_link.may_be_made(), reason="network namespaces take root, on Linux"
)


class Conversation:
    """A client on the far host that talks to an echo server on the near one."""

    def __init__(self, client: subprocess.Popen[str]) -> None:
        self._client = client

    def ask(self) -> None:
        """Sends a message."""
        assert self._client.stdin is not None
        self._client.stdin.write("hello\n")
        self._client.stdin.flush()

    def round_trip_s(self) -> float:
        """Returns the round trip of the oldest message; waits for its answer."""
        assert self._client.stdout is not None
        return float(self._client.stdout.readline())


@contextlib.contextmanager
def conversation(link: PacketLink | ProxyLink) -> Iterator[Conversation]:
    """Joins the two hosts of `link` by one connection."""
    with contextlib.ExitStack() as stack:

        def python(host: list[str], code: str, *arguments: str) -> subprocess.Popen[str]:
            command = [*host, sys.executable, "-c", code, *arguments]
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
            stack.callback(process.communicate)
            stack.callback(process.kill)
            return process

        server = python(link.on_near_host, ECHO_SERVER, link.near_host)
        assert server.stdout is not None
        address = stack.enter_context(link.reaching(int(server.stdout.readline())))
        yield Conversation(python(link.on_far_host, CLIENT, address))


@pytest.mark.parametrize("kind", [ProxyLink, pytest.param(PacketLink, marks=needs_rights)])
def test_link_is_as_far_as_it_is_told(kind: type[PacketLink] | type[ProxyLink]) -> None:
    """A change also reaches an open connection."""
    with kind() as link, conversation(link) as talk:
        talk.ask()
        talk.round_trip_s()
        link.change(delay_s=0.05, loss=0.0)
        talk.ask()
        assert talk.round_trip_s() >= 0.1


@pytest.mark.parametrize("kind", [ProxyLink, pytest.param(PacketLink, marks=needs_rights)])
def test_what_was_sent_during_a_cut_comes_after_it(
    kind: type[PacketLink] | type[ProxyLink],
) -> None:
    """The connection survives the cut, and nothing comes through during it."""
    with kind() as link, conversation(link) as talk:
        talk.ask()
        talk.round_trip_s()
        link.cut()
        started_s = time.monotonic()
        talk.ask()
        time.sleep(0.3)  # No event marks silence, so the test has to wait.
        link.heal()
        assert talk.round_trip_s() >= 0.3
        assert time.monotonic() - started_s < TIMEOUT_S


@needs_rights
def test_packets_are_lost_below_tcp() -> None:
    """Some of the datagrams arrive, and not all."""
    receiver = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
    end.bind((sys.argv[1], 5000))
    print("bound", flush=True)
    count = 0
    while end.recv(100) != b"end":
        count += 1
    print(count)
"""
    sender = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
    for _ in range(200):
        end.sendto(b"x", (sys.argv[1], 5000))
    for _ in range(50):
        end.sendto(b"end", (sys.argv[1], 5000))
"""
    with PacketLink() as link:
        link.change(delay_s=0.0, loss=0.5)
        command = [*link.on_near_host, sys.executable, "-c", receiver, link.near_host]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "bound\n"
            command = [*link.on_far_host, sys.executable, "-c", sender, link.near_host]
            subprocess.run(command, check=True)
            # Of 200, each lost by a chance of one half, so few or many arrive once in 10^8 times.
            assert 60 < int(process.stdout.readline()) < 140


@needs_rights
def test_link_leaves_nothing_behind() -> None:
    """There is no namespace left, and the near host's address is free."""
    with PacketLink() as link:
        name = link.on_near_host[-1]
        assert name in _namespaces()
    assert name not in _namespaces()
    with pytest.raises(OSError), socket.socket() as end:
        end.bind((link.near_host, 0))


def _namespaces() -> str:
    done = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    return done.stdout


def test_tables_hold_every_measurement() -> None:
    """There is one line for each, as docs/links.md shows them."""
    speed = {"envs": 128, "round_trip_ms": 50, "loss": 0.01, "env_steps_per_s": 2239.9}
    cut = {"seconds": 60.0, "dropped_after_s": 40.2, "steps_flow_after_healing_s": 12.34}
    results = {
        "cartpole": {"rows": [speed | {"rule_env_steps_per_s": 2475, "share_of_rule": 0.905}]},
        "cuts": {"rows": [cut, cut | {"seconds": 20.0, "dropped_after_s": None}]},
    }
    lines = tables(results).splitlines()
    assert "| cartpole | 128 | 50 | 1% | 2,240 | 2,475 | 0.91 |" in lines
    assert "| 60 | 40 | 12.3 |" in lines
    assert "| 20 | never | 12.3 |" in lines


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        ({"cases": ("catch",)}, "cases: expected of cartpole, pong, got 'catch'"),
        ({"seconds": 0.0}, "seconds: expected above 0"),
        ({"cuts": (5.0, 0.0)}, "cuts: expected all above 0"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], refusal: str) -> None:
    """The error names the flag."""
    with pytest.raises(ConfigError, match=f"^{refusal}"):
        NetworksArgs(out=Path("x.json"), **settings)
