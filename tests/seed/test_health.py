"""`seed health` against a real health service: exit codes and messages."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from learner.serving.authentication import server_credentials
from seed import cli
from tests.support.credentials import learner_security

ROOT = Path(__file__).parents[2]

Status = health_pb2.HealthCheckResponse


class Health:
    """A server that has nothing but its health, over plain text and mutual TLS."""

    def __init__(self, directory: Path, certs: Path) -> None:
        self.servicer = health.HealthServicer()
        self.server = grpc.server(futures.ThreadPoolExecutor(2))
        health_pb2_grpc.add_HealthServicer_to_server(self.servicer, self.server)
        self.unix = f"unix:{directory / 'learner.sock'}"
        self.server.add_insecure_port(self.unix)
        self.plain = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
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
    for address in (f"unix:{tmp_path}/none.sock", "127.0.0.1:1", "[::1]:1", "no-such-host.test:1"):
        assert cli.main(["health", address, "--timeout-s", "60"]) == 1
        printed = capsys.readouterr().err
        assert printed.startswith("seed health: learner: expected a learner that listens, got ")
        assert printed.endswith(f" ({address})\n")


def test_program_that_does_not_answer_is_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A connection that is accepted is not enough: the learner must say that it serves."""
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "silent"))
        silent.listen()
        assert cli.main(["health", f"unix:{tmp_path}/silent", "--timeout-s", "0.2"]) == 1
    assert "DEADLINE_EXCEEDED" in capsys.readouterr().err


@pytest.mark.parametrize(
    "variable",
    ["http_proxy", "https_proxy", "grpc_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY"],
)
def test_proxies_are_not_used(
    served: Health, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Actors do not use them either; a proxy of the company cannot reach this machine."""
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv(variable, "http://127.0.0.1:1")
    assert cli.main(["health", served.plain]) == 0


def test_probe_loads_only_what_it_needs(served: Health, tmp_path: Path) -> None:
    """A container starts a probe every few seconds: no torch, no tyro, no gRPC for a dead one."""
    code = """
import sys
from seed import cli
assert cli.main(["health", sys.argv[1]]) == 1
assert "grpc" not in sys.modules
assert cli.main(["health", sys.argv[2]]) == 0
assert not {"tyro", "torch", "numpy", "cattrs"} & set(sys.modules)
"""
    command = [sys.executable, "-c", code, f"unix:{tmp_path}/none", served.unix]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "flags",
    [("nowhere",), ("http://h:1",), ("h:0",), ("--timeout-s", "0"), ("--tls-cert", "x.pem")],
)
def test_bad_flags_exit_2(flags: tuple[str, ...]) -> None:
    """The parser reports usage errors."""
    with pytest.raises(SystemExit) as caught:
        cli.main(["health", *flags])
    assert caught.value.code == 2
