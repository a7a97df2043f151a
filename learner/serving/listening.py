"""Where the learner listens, and which addresses need TLS and a token.

`check_listen_addresses` is called by the main thread before anything is built, `bind`
on the server's event loop.
"""

import os
import socket
from collections.abc import Sequence
from pathlib import Path

import grpc

from seed.addresses import check_address, grpc_target, is_local, is_unix, unix_path
from seed.errors import ConfigError, expected
from seed.security import Security


def check_listen_addresses(
    addresses: Sequence[str], security: Security, *, insecure: bool = False
) -> None:
    """Refuses addresses that would let strangers connect or read along.

    The file system guards a unix socket, and a loopback address cannot be reached from
    another machine: they need neither TLS nor a token.

    Raises:
      ConfigError: an address beyond this machine without TLS and a token, unless
        `insecure`; a malformed one; or none at all.
    """
    if not addresses:
        raise ConfigError(expected("listen", "one or more addresses", "none"))
    missing = []
    if security.tls is None:
        missing.append("--tls-cert and --tls-key")
    if security.token is None:
        missing.append("--token-file")
    for address in addresses:
        check_address("listen", address, any_port=True)
        if missing and not insecure and not is_local(address):
            wanted = (
                f"{' and '.join(missing)} for an address beyond this machine (make certs makes "
                "the files), or --insecure where everybody on the network is trusted"
            )
            raise ConfigError(expected("listen", wanted, address))


def bind(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None) -> str:
    """Makes `server` listen on `address`; returns it with the port that it got.

    Args:
      server: one that has not been started.
      address: "host:port" (port 0: any free one) or "unix:PATH".
      credentials: TLS credentials for a TCP address; unix sockets are never encrypted.

    Raises:
      ConfigError: the address cannot be bound, or a server already listens there.
    """
    if is_unix(address) and _somebody_listens(unix_path(address)):
        # gRPC would replace the socket of a server that still listens there.
        raise ConfigError(expected("listen", "a socket that no server listens on", address))
    target = grpc_target(address)
    try:
        if credentials is None or is_unix(address):
            port = server.add_insecure_port(target)
        else:
            port = server.add_secure_port(target, credentials)
    except RuntimeError as error:
        got = f"{address}{_reason(address)}"
        raise ConfigError(expected("listen", "an address that can be bound", got)) from error
    return address if is_unix(address) else f"{address.rpartition(':')[0]}:{port}"


def _reason(address: str) -> str:
    """Returns why a socket file cannot be made, in brackets; nothing where that is not known."""
    directory = Path(unix_path(address)).parent
    if not is_unix(address) or os.access(directory, os.W_OK | os.X_OK):
        return ""
    return f" ({directory}: {'cannot be written' if directory.is_dir() else 'no such directory'})"


def _somebody_listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
        return True
