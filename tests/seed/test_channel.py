"""Why a call to a running learner fails: every wrong pairing of two sides, over real gRPC."""

import socket
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from learner.serving.authentication import server_credentials
from seed.channel import access_problem, connect
from seed.security import Security
from tests.support.credentials import actor_security, learner_security

TIMEOUT_S = 10

Serve = Callable[..., str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts servers with the security given, and returns their addresses."""
    servers = []

    def start(security: Security, host: str = "127.0.0.1") -> str:
        server = grpc.server(futures.ThreadPoolExecutor(1))
        servers.append(server)
        health_pb2_grpc.add_HealthServicer_to_server(health.HealthServicer(), server)
        credentials = server_credentials(security)
        if credentials is None:
            port = server.add_insecure_port(f"{host}:0")
        else:
            port = server.add_secure_port(f"{host}:0", credentials)
        server.start()
        return f"{host}:{port}"

    yield start
    for server in servers:
        server.stop(None).wait()


def call(address: str, security: Security) -> None:
    """Makes a call, and raises gRPC's errors."""
    with connect(address, security) as channel:
        request = health_pb2.HealthCheckRequest()
        stub = health_pb2_grpc.HealthStub(channel)
        stub.Check(request, timeout=TIMEOUT_S)  # pyright: ignore[reportAttributeAccessIssue]


def test_sides_that_fit_talk_and_have_no_problem(serve: Serve, certs: Path) -> None:
    """This holds for plain text, TLS, and mutual TLS."""
    for ours, theirs in (
        (Security(), Security()),
        (actor_security(certs), learner_security(certs)),
        (actor_security(certs, own=certs), learner_security(certs, mutual=True)),
        # A certificate that the server does not ask for does no harm.
        (actor_security(certs, own=certs), learner_security(certs)),
    ):
        address = serve(theirs)
        call(address, ours)
        assert access_problem(address, ours) is None


def problem_of(address: str, security: Security) -> str:
    """Returns the explanation of a call that fails."""
    with pytest.raises(grpc.RpcError) as caught:
        call(address, security)
    assert isinstance(caught.value, grpc.Call)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    problem = access_problem(address, security)
    assert problem is not None
    text = str(problem)
    assert text.endswith(f" ({address})")
    return text


def test_plain_text_to_a_learner_with_tls(serve: Serve, certs: Path) -> None:
    """gRPC says only "socket closed", whether or not a certificate is asked for."""
    for theirs in (learner_security(certs), learner_security(certs, mutual=True)):
        problem = problem_of(serve(theirs), Security())
        assert problem.startswith("tls_ca: expected the CA of this learner, which speaks TLS")


def test_tls_to_a_learner_with_plain_text(serve: Serve, certs: Path) -> None:
    """The call sends nothing to it."""
    problem = problem_of(serve(Security()), actor_security(certs))
    assert problem.startswith("tls_ca: expected a learner that speaks TLS, got one that speaks")


def test_learner_of_another_ca(serve: Serve, certs: Path, other_certs: Path) -> None:
    """Any program could be at the address."""
    problem = problem_of(serve(learner_security(certs)), actor_security(other_certs))
    assert problem.startswith(f"tls_ca: expected a learner whose certificate {other_certs}/ca.pem")
    assert "local issuer" in problem


def test_learner_whose_certificate_has_expired(serve: Serve, expired_certs: Path) -> None:
    """The explanation names the expiry."""
    problem = problem_of(serve(learner_security(expired_certs)), actor_security(expired_certs))
    assert "got certificate has expired" in problem


def test_learner_by_an_address_that_its_certificate_lacks(serve: Serve, certs: Path) -> None:
    """The explanation names the address, which is another of the same machine."""
    address = serve(learner_security(certs), "127.0.0.2")
    problem = problem_of(address, actor_security(certs))
    assert "certificate is not valid for '127.0.0.2'" in problem


def test_mutual_tls_without_a_certificate(serve: Serve, certs: Path) -> None:
    """gRPC says only "socket closed"."""
    problem = problem_of(serve(learner_security(certs, mutual=True)), actor_security(certs))
    assert problem.startswith("tls_cert: expected a certificate, as this learner asks for, got no")


def test_mutual_tls_with_a_strangers_certificate(
    serve: Serve, certs: Path, other_certs: Path
) -> None:
    """The learner admits no certificate of another CA."""
    ours = actor_security(certs, own=other_certs)
    problem = problem_of(serve(learner_security(certs, mutual=True)), ours)
    assert problem.startswith("tls_cert: expected a certificate that the learner's --tls-ca")


def test_learner_that_is_away_is_no_problem_of_access(tmp_path: Path, certs: Path) -> None:
    """Waiting may help where no process listens, or none answers yet."""
    with socket.create_server(("127.0.0.1", 0)) as owner:
        address = f"127.0.0.1:{owner.getsockname()[1]}"
    for security in (Security(), actor_security(certs)):
        assert access_problem(address, security) is None
        assert access_problem(f"unix:{tmp_path}/learner.sock", security) is None


def test_learner_that_is_silent_is_no_problem_of_access(
    certs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A paused learner accepts connections, and does not shake hands."""
    monkeypatch.setattr("seed.channel._PROBE_TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        for security in (Security(), actor_security(certs)):
            assert access_problem(address, security) is None
