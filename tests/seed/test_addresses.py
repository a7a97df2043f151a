"""Addresses: which ones are valid, and which reach beyond this machine."""

import pytest

from seed.addresses import (
    MAX_SOCKET_PATH_BYTES,
    address_of_process,
    check_address,
    check_metrics_address,
    grpc_target,
    is_local,
    split_tcp,
)
from seed.errors import ConfigError

LOCAL = (
    "127.0.0.1:0",
    "127.9.9.9:65535",
    "localhost:50051",
    "[::1]:50051",
    "unix:/tmp/s",
    "unix:s",
)
REMOTE = ("0.0.0.0:50051", "[::]:50051", "10.0.0.1:1", "learner:50051", "localhost.evil:1")


@pytest.mark.parametrize("address", LOCAL + REMOTE)
def test_addresses_are_accepted(address: str) -> None:
    """They are told apart by the machines that reach them."""
    check_address("listen", address, any_port=True)
    assert is_local(address) is (address in LOCAL)


@pytest.mark.parametrize("address", ["", "localhost", "h:65536", "unix:", "unix:///tmp/s"])
def test_malformed_addresses_are_refused(address: str) -> None:
    """gRPC would use another address instead, such as port 443."""
    with pytest.raises(ConfigError, match="^learner: expected host:port") as caught:
        check_address("learner", address)
    assert str(caught.value).endswith(f", got {address!r}")


def test_only_a_listener_takes_any_free_port() -> None:
    """No learner can be reached at port 0."""
    with pytest.raises(ConfigError, match="^learner: expected host:port with a port of 1 .. 65535"):
        check_address("learner", "127.0.0.1:0")


def test_brackets_of_ipv6_are_no_part_of_the_host() -> None:
    """A socket takes the host without brackets."""
    assert split_tcp("[::1]:50051") == ("::1", 50051)
    assert split_tcp("learner:1") == ("learner", 1)


def test_metrics_port_is_a_port_or_none() -> None:
    """Port 0 means any free port."""
    for port in (None, 0, 65_535):
        check_metrics_address("127.0.0.1", port)
    with pytest.raises(ConfigError, match="^metrics_port: expected 0 .. 65535, got 65536"):
        check_metrics_address("127.0.0.1", 65_536)


def test_metrics_host_is_a_host_alone() -> None:
    """The port has a flag of its own, and a socket takes IPv6 addresses without brackets."""
    for host in ("0.0.0.0", "::", "localhost", "node-1.example.org"):
        check_metrics_address(host, None)
    for host in ("", "[::]", "localhost:9000", "http://localhost", "10.0.0.256"):
        with pytest.raises(ConfigError, match="^metrics_host: expected an IP address or a host's"):
            check_metrics_address(host, None)


def test_processes_share_a_port_but_not_a_socket_file() -> None:
    """The first file has the name that a single process would use."""
    assert [address_of_process("h:1", index) for index in range(2)] == ["h:1", "h:1"]
    assert [address_of_process("unix:s", index) for index in range(2)] == ["unix:s", "unix:s-1"]


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/" + MAX_SOCKET_PATH_BYTES * "x", f"it has {MAX_SOCKET_PATH_BYTES + 1} bytes, and the"),
        ("/tmp/" + 52 * "ü", "it has 109 bytes, and the system takes"),
        ("/tmp/a,b", "gRPC takes a comma for the end of an address"),
        ("/tmp/a\nb", "it has characters that cannot be printed"),
    ],
)
def test_socket_paths_that_cannot_work_are_refused(path: str, problem: str) -> None:
    """Bytes count, not characters; the longest path that works is accepted."""
    with pytest.raises(ConfigError, match=f"^learner: expected unix:PATH.*{problem}"):
        check_address("learner", f"unix:{path}")
    check_address("learner", "unix:/" + (MAX_SOCKET_PATH_BYTES - 1) * "x")


@pytest.mark.parametrize(
    ("address", "target"),
    [
        ("unix:/tmp/a b%20?#", "unix:/tmp/a%20b%2520%3F%23"),
        ("unix:/tmp/ü", "unix:/tmp/%C3%BC"),
        ("unix:learner.sock", "unix:learner.sock"),
        ("[::1]:50051", "[::1]:50051"),
    ],
)
def test_grpc_reads_a_path_as_it_is(address: str, target: str) -> None:
    """gRPC decodes a path as a URL's; an address of TCP stays as it is."""
    assert grpc_target(address) == target
