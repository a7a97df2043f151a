"""The `seed health` command: whether a learner serves, by the standard gRPC health service.

For the health checks of containers, which need an exit code and no additional program.
Sends no token: the learner answers health checks without one. Imports no torch.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
import tyro
from grpc_health.v1 import health_pb2, health_pb2_grpc

from seed.addresses import check_address
from seed.channel import access_problem, connect
from seed.errors import SeedError, require
from seed.grpc_status import error_from_status
from seed.security import Security, TlsFiles, check_client_flags, load_security


@dataclass(frozen=True, kw_only=True)
class HealthArgs:
    """Asks a learner whether it serves; the exit code is 0 if it does, else 1."""

    learner: tyro.conf.Positional[str] = "127.0.0.1:50051"
    """Address of the learner: "host:port" or "unix:/path"."""
    service: str = ""
    """"": the learner as a whole. "seed.v1.Inference": its only service."""
    timeout_s: float = 5.0
    """Seconds in which the learner must answer."""
    tls_ca: Path | None = None
    """Speak TLS, to a learner whose certificate this PEM file vouches for."""
    tls_cert: Path | None = None
    """Mutual TLS: PEM file of a certificate, for a learner that asks for one."""
    tls_key: Path | None = None
    """PEM file of the certificate's private key."""

    def __post_init__(self) -> None:
        check_address("learner", self.learner)
        require(self.timeout_s > 0, "timeout_s", "above 0", self.timeout_s)
        check_client_flags(self.learner, self.tls_files, None)

    @property
    def tls_files(self) -> TlsFiles:
        """The files of --tls-cert, --tls-key and --tls-ca."""
        return TlsFiles(self.tls_cert, self.tls_key, self.tls_ca)


def main(argv: Sequence[str]) -> int:
    """Prints the learner's status, or the error; returns the exit code."""
    args = tyro.cli(HealthArgs, prog="seed health", args=list(argv))
    security = load_security(args.tls_files, None)
    try:
        status = ask(args, security)
    except SeedError as error:
        print(f"seed health: {error}", file=sys.stderr)
        return 1
    print(health_pb2.HealthCheckResponse.ServingStatus.Name(status))
    return 0 if status == health_pb2.HealthCheckResponse.SERVING else 1


def ask(args: HealthArgs, security: Security) -> health_pb2.HealthCheckResponse.ServingStatus:
    """Returns the learner's answer.

    Raises:
      AccessError: the learner runs, but its TLS settings differ.
      SeedError: the learner does not answer, or has no such service.
    """
    request = health_pb2.HealthCheckRequest(service=args.service)
    with connect(args.learner, security) as channel:
        try:
            stub = health_pb2_grpc.HealthStub(channel)
            answer = stub.Check(  # pyright: ignore[reportAttributeAccessIssue]
                request, timeout=args.timeout_s
            )
            return answer.status
        except grpc.RpcError as error:
            if problem := access_problem(args.learner, security):
                raise problem from error
            assert isinstance(error, grpc.Call)
            raise error_from_status(error.code(), error.details() or "") from error
