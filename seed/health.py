"""The `seed health` command: whether a learner serves, by the standard gRPC health service.

For the health checks of containers, which need an exit code and no additional program, every few
seconds. So it imports no torch, no tyro, and gRPC only if something listens at the address.
Sends no token: the learner answers health checks without one.
"""

import argparse
import contextlib
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seed.addresses import check_address, is_unix, split_tcp, unix_path
from seed.errors import ConfigError, LearnerUnavailableError, SeedError, expected, require
from seed.security import Security, TlsFiles, check_client_flags, load_security
from seed.suggestions import did_you_mean, near_names

SERVING = "SERVING"


@dataclass(frozen=True, kw_only=True)
class HealthArgs:
    """The flags of `seed health`, checked."""

    learner: str
    service: str
    timeout_s: float
    tls_files: TlsFiles

    def __post_init__(self) -> None:
        check_address("learner", self.learner)
        require(self.timeout_s > 0, "timeout_s", "above 0", self.timeout_s)
        check_client_flags(self.learner, self.tls_files, None)


def main(argv: Sequence[str]) -> int:
    """Prints the learner's status, or the error; returns the exit code."""
    args = parse(argv)
    security = load_security(args.tls_files, None)
    try:
        status = ask(args, security)
    except SeedError as error:
        print(f"seed health: {error}", file=sys.stderr)
        return 1
    print(status)
    return 0 if status == SERVING else 1


def ask(args: HealthArgs, security: Security) -> str:
    """Returns the learner's answer by its name in `grpc.health.v1`.

    Raises:
      AccessError: the learner runs, but its TLS settings differ.
      SeedError: the learner does not answer, or has no such service.
    """
    give_up_at = time.monotonic() + args.timeout_s
    _check_listens(args.learner, args.timeout_s)
    return _ask_service(args, security, max(give_up_at - time.monotonic(), 0.0))


def _check_listens(address: str, timeout_s: float) -> None:
    """Raises LearnerUnavailableError if no program accepts a connection at `address`."""
    try:
        with contextlib.closing(_open_socket(address, timeout_s)):
            return
    except OSError as error:
        got = f"{error.strerror or error} ({address})"
        raise LearnerUnavailableError(expected("learner", "a learner that listens", got)) from error


def _open_socket(address: str, timeout_s: float) -> socket.socket:
    if not is_unix(address):
        return socket.create_connection(split_tcp(address), timeout_s)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(timeout_s)
        connection.connect(unix_path(address))
    except OSError:
        connection.close()
        raise
    return connection


def _ask_service(args: HealthArgs, security: Security, timeout_s: float) -> str:
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    from seed.channel import access_problem, connect
    from seed.grpc_status import error_from_status

    request = health_pb2.HealthCheckRequest(service=args.service)
    with connect(args.learner, security) as channel:
        try:
            stub = health_pb2_grpc.HealthStub(channel)
            answer = stub.Check(  # pyright: ignore[reportAttributeAccessIssue]
                request, timeout=timeout_s
            )
        except grpc.RpcError as error:
            if problem := access_problem(args.learner, security):
                raise problem from error
            assert isinstance(error, grpc.Call)
            raise error_from_status(error.code(), error.details() or "") from error
    return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)


def parse(argv: Sequence[str]) -> HealthArgs:
    """Returns the flags of `seed health`; exits as argparse does on flags that do not exist."""
    parser = _parser()
    # As for the other commands, --tls_ca is --tls-ca.
    words = [word.replace("_", "-") if word.startswith("--") else word for word in argv]
    given, unknown = parser.parse_known_args(words)
    if unknown:
        hint = did_you_mean(near_names(unknown[0], ("--service", "--timeout-s", *_TLS_FLAGS)))
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    try:
        return HealthArgs(
            learner=given.learner,
            service=given.service,
            timeout_s=given.timeout_s,
            tls_files=TlsFiles(given.tls_cert, given.tls_key, given.tls_ca),
        )
    except ConfigError as error:
        parser.error(str(error))


def _parser() -> argparse.ArgumentParser:
    # tyro, which parses the other commands, takes as long to import as gRPC.
    parser = argparse.ArgumentParser(
        prog="seed health",
        description="Asks a learner whether it serves; the exit code is 0 if it does, else 1.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "learner",
        nargs="?",
        metavar="LEARNER",
        default="127.0.0.1:50051",
        help="address of the learner, host:port or unix:PATH (default: %(default)s)",
    )
    parser.add_argument(
        "--service",
        default="",
        help='name of one service, such as "seed.v1.Inference" (default: the learner as a whole)',
    )
    parser.add_argument(
        "--timeout-s",
        type=float,
        default=5.0,
        help="seconds in which the learner must answer (default: %(default)s)",
    )
    for flag, text in _TLS_FLAGS.items():
        parser.add_argument(flag, type=Path, metavar="PATH", help=text)
    return parser


_TLS_FLAGS = {
    "--tls-ca": "speak TLS, to a learner whose certificate this PEM file vouches for",
    "--tls-cert": "mutual TLS: PEM file of a certificate, for a learner that asks for one",
    "--tls-key": "PEM file of the certificate's private key",
}
