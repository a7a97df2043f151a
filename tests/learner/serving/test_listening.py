"""Where the server listens: which addresses can be bound, and which need TLS and a token."""

import socket
from pathlib import Path

import pytest

from learner.reporting.metrics import Metrics
from learner.serving.factory import Server, make_server
from learner.serving.listening import check_listen_addresses
from learner.serving.reception import Reception
from seed.addresses import MAX_SOCKET_PATH_BYTES
from seed.errors import ConfigError
from seed.pb import inference_pb2 as pb
from seed.security import Security
from tests.learner.serving.support import FakeActor, WatchedBatcher
from tests.support.credentials import learner_security


def server_at(*addresses: str, ingress_processes: int = 0) -> Server:
    """Returns a server that has not been started."""
    reception = Reception(
        make_task=pb.Task, admit=lambda spec: "", batcher=WatchedBatcher(), metrics=Metrics()
    )

    def fail(error: BaseException) -> None:
        raise error

    return make_server(reception, addresses, fail, ingress_processes=ingress_processes)


def test_tcp_and_unix_sockets_serve_at_once(tmp_path: Path, ingress_processes: int) -> None:
    """The real port replaces port 0, and each process has its own socket file."""
    path = f"unix:{tmp_path / 'sock'}"
    server = server_at("127.0.0.1:0", path, ingress_processes=ingress_processes)
    tcp, *unix = server.start()
    assert int(tcp.removeprefix("127.0.0.1:")) > 0
    assert unix == ([path, f"{path}-1"] if ingress_processes else [path])
    for address in (tcp, *unix):
        actor = FakeActor(address)
        actor.say_hello(1)
        actor.close()
    server.close()


def test_busy_port_is_refused(ingress_processes: int) -> None:
    """The process that has the port would keep half of the actors."""
    with socket.create_server(("127.0.0.1", 0)) as owner:
        address = f"127.0.0.1:{owner.getsockname()[1]}"
        server = server_at(address, ingress_processes=ingress_processes)
        with pytest.raises(ConfigError, match=f"^listen: .* got {address}"):
            server.start()
        server.close()


@pytest.mark.parametrize("rivals", [0, 2])
def test_port_that_ingress_processes_share_is_busy_for_others(rivals: int) -> None:
    """The system would share the port with any process that asks for it."""
    owner = server_at("127.0.0.1:0", ingress_processes=2)
    (address,) = owner.start()
    rival = server_at(address, ingress_processes=rivals)
    with pytest.raises(ConfigError, match=f"^listen: .* got {address}"):
        rival.start()
    rival.close()
    owner.close()


def test_unix_socket_of_a_living_server_is_refused(tmp_path: Path, ingress_processes: int) -> None:
    """gRPC would remove it; the socket file of a dead server is replaced."""
    address = f"unix:{tmp_path / 'sock'}"
    owner = server_at(address)
    owner.start()
    rival = server_at(address, ingress_processes=ingress_processes)
    with pytest.raises(ConfigError, match="^listen: expected"):
        rival.start()
    rival.close()
    owner.close()
    with socket.socket(socket.AF_UNIX) as dead:
        (tmp_path / "sock").unlink(missing_ok=True)
        dead.bind(str(tmp_path / "sock"))
    heir = server_at(address)
    assert heir.start() == [address]
    heir.close()


def test_address_that_cannot_be_bound_is_refused(tmp_path: Path, ingress_processes: int) -> None:
    """The directory does not exist, or the address is another machine's."""
    for address in (f"unix:{tmp_path / 'missing' / 'sock'}", "203.0.113.7:0"):
        server = server_at(address, ingress_processes=ingress_processes)
        with pytest.raises(ConfigError, match="^listen: expected an address that can be bound"):
            server.start()
        server.close()


@pytest.mark.parametrize("name", ["a b", "100%", "a%20b", "why?", "#1", "café", "~", "[x]"])
def test_any_name_of_a_socket_works(tmp_path: Path, name: str) -> None:
    """gRPC takes a path for a part of a URL, in which some characters mean something else."""
    (tmp_path / name).mkdir()
    address = f"unix:{tmp_path / name / 'sock'}"
    server = server_at(address)
    assert server.start() == [address]
    actor = FakeActor(address)
    actor.say_hello(1)
    actor.close()
    server.close()


def test_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    """The error says which directory it is."""
    server = server_at(f"unix:{tmp_path / 'missing' / 'sock'}")
    wanted = "listen: expected an address that can be bound, got .*missing: no such directory"
    with pytest.raises(ConfigError, match=wanted):
        server.start()
    server.close()


def test_path_that_the_number_of_a_process_makes_too_long_is_refused(tmp_path: Path) -> None:
    """The first of two processes could listen, and the second could not."""
    length = MAX_SOCKET_PATH_BYTES - len(str(tmp_path)) - 2
    if length < 1:
        pytest.skip("the directory of this test has too long a name")
    server = server_at(f"unix:{tmp_path / ('x' * length)}x", ingress_processes=2)
    with pytest.raises(
        ConfigError, match="listen: expected unix:PATH.*it has 109 bytes, and the system takes 107"
    ):
        server.start()
    server.close()


LOCAL = ("127.0.0.1:0", "localhost:50051", "[::1]:50051", "unix:/tmp/s")


def test_local_addresses_need_no_permission() -> None:
    """Only processes of this machine reach them."""
    check_listen_addresses(LOCAL, Security())


@pytest.mark.parametrize("address", ["0.0.0.0:50051", "[::]:50051", "10.0.0.1:1", "learner:50051"])
def test_addresses_beyond_this_machine_need_tls_and_a_token(address: str, certs: Path) -> None:
    """They need both, or --insecure, and the error says what is missing."""
    both = learner_security(certs, token=True)
    tls, token = Security(tls=both.tls), Security(token=both.token)
    for security, missing in (
        (Security(), "--tls-cert and --tls-key and --token-file for"),
        (tls, "--token-file for"),
        (token, "--tls-cert and --tls-key for"),
    ):
        with pytest.raises(ConfigError, match=f"^listen: expected {missing}.*--insecure.*got"):
            check_listen_addresses(["127.0.0.1:0", address], security)
        check_listen_addresses([address], security, insecure=True)
    check_listen_addresses([address], both)


@pytest.mark.parametrize("address", ["", "localhost", "h:65536", "unix:"])
def test_malformed_addresses_are_refused(address: str) -> None:
    """gRPC would bind another address, such as port 443."""
    with pytest.raises(ConfigError, match="^listen: expected"):
        check_listen_addresses([address], Security(), insecure=True)


def test_no_address_is_refused() -> None:
    """No actor could ever connect."""
    with pytest.raises(ConfigError, match="^listen: expected one or more addresses, got none"):
        check_listen_addresses([], Security(), insecure=True)
