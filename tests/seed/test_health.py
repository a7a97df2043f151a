"""`seed health` against a real health service: exit codes and messages."""

from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from learner.serving.authentication import server_credentials
from seed import cli
from tests.support.credentials import learner_security

Status = health_pb2.HealthCheckResponse


class Health:
    """A server that has nothing but its health, over plain text and mutual TLS."""

    def __init__(self, directory: Path, certs: Path) -> None:
        self.servicer = health.HealthServicer()
        self.server = grpc.server(futures.ThreadPoolExecutor(2))
        health_pb2_grpc.add_HealthServicer_to_server(self.servicer, self.server)
        self.unix = f"unix:{directory / 'learner.sock'}"
        self.server.add_insecure_port(self.unix)
        credentials = server_credentials(learner_security(certs, mutual=True))
        assert credentials is not None
        self.tcp = f"127.0.0.1:{self.server.add_secure_port('127.0.0.1:0', credentials)}"
        self.server.start()


@pytest.fixture
def served(tmp_path: Path, certs: Path) -> Iterator[Health]:
    """A server that serves."""
    served = Health(tmp_path, certs)
    yield served
    served.server.stop(None).wait()


def test_serving_is_exit_code_0(served: Health, capsys: pytest.CaptureFixture[str]) -> None:
    """stdout has the name of the status."""
    assert cli.main(["health", served.unix]) == 0
    assert capsys.readouterr().out == "SERVING\n"


def test_not_serving_is_exit_code_1(served: Health, capsys: pytest.CaptureFixture[str]) -> None:
    """A learner that stops has this status."""
    served.servicer.enter_graceful_shutdown()
    assert cli.main(["health", served.unix]) == 1
    assert capsys.readouterr().out == "NOT_SERVING\n"


def test_service_is_asked_for_by_name(served: Health, capsys: pytest.CaptureFixture[str]) -> None:
    """A service that does not exist is an error."""
    served.servicer.set("a.Service", Status.SERVING)
    assert cli.main(["health", served.unix, "--service", "a.Service"]) == 0
    assert cli.main(["health", served.unix, "--service", "b.Service"]) == 1
    assert "(NOT_FOUND)" in capsys.readouterr().err


def test_mutual_tls_is_spoken(
    served: Health, certs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The flags are those of actors, and without them the reason names the flag."""
    ca = ("--tls-ca", str(certs / "ca.pem"))
    own = ("--tls-cert", str(certs / "actor.pem"), "--tls-key", str(certs / "actor.key"))
    assert cli.main(["health", served.tcp, *ca, *own]) == 0
    assert cli.main(["health", served.tcp, *ca]) == 1
    assert capsys.readouterr().err.startswith("seed health: tls_cert: expected a certificate")
    assert cli.main(["health", served.tcp]) == 1
    assert capsys.readouterr().err.startswith("seed health: tls_ca: expected the CA of this")


def test_absent_server_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It exits at once with one line, and not after the timeout."""
    assert cli.main(["health", f"unix:{tmp_path}/none.sock", "--timeout-s", "60"]) == 1
    assert capsys.readouterr().err.startswith("seed health: UNAVAILABLE")


@pytest.mark.parametrize("flags", [("nowhere",), ("--timeout-s", "0"), ("--tls-cert", "x.pem")])
def test_bad_flags_exit_2(flags: tuple[str, ...]) -> None:
    """The parser reports usage errors."""
    with pytest.raises(SystemExit) as caught:
        cli.main(["health", *flags])
    assert caught.value.code == 2
