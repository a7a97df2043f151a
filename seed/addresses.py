"""Addresses as users write them: "host:port", or "unix:PATH" for a socket file.

Used by both sides and the health check, when flags are read.
"""

import ipaddress
import os
import sys
import urllib.parse

from seed.errors import ConfigError, expected, require
from seed.tcp_address import MAX_PORT, is_host, wanted_instead

# What the system takes: `sun_path` of sockaddr_un, less its last byte, which is 0.
MAX_SOCKET_PATH_BYTES = 103 if sys.platform == "darwin" else 107

_UNIX = "unix:"


def check_address(field: str, address: str, *, any_port: bool = False) -> None:
    """Raises ConfigError naming `field` if `address` is neither "host:port" nor "unix:PATH".

    gRPC would accept almost any text: it reads "localhost" as port 443, and an actor would try
    to reach "http://h:1" for ever.

    Args:
      any_port: port 0 is accepted, for a listener that may take any free port.
    """
    path = unix_path(address)
    if is_unix(address) and path and not path.startswith("//"):
        if problem := socket_path_problem(path):
            wanted = f"unix:PATH, of at most {MAX_SOCKET_PATH_BYTES} bytes and without a comma"
            raise ConfigError(expected(field, wanted, f"{address!r} ({problem})"))
        return
    if wanted := wanted_instead(address, any_port=any_port):
        raise ConfigError(expected(field, wanted, repr(address)))


def check_metrics_address(host: str, port: int | None) -> None:
    """Raises ConfigError if metrics cannot be served there.

    Args:
      host: an IP address without brackets, or a name of this machine.
      port: 0 means any free port, None means no server.
    """
    if port is not None and not 0 <= port <= MAX_PORT:
        raise ConfigError(expected("metrics_port", f"0 .. {MAX_PORT}", port))
    wanted = "an IP address or a host's name, without brackets and port"
    require(is_host(host), "metrics_host", wanted, host)


def is_unix(address: str) -> bool:
    """Tells whether `address` is a socket file of this machine."""
    return address.startswith(_UNIX)


def is_local(address: str) -> bool:
    """Tells whether only processes of this machine can connect to `address`."""
    if is_unix(address):
        return True
    host, _ = split_tcp(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def unix_path(address: str) -> str:
    """Returns PATH of a "unix:PATH"."""
    return address.removeprefix(_UNIX)


def socket_path_problem(path: str) -> str | None:
    """Returns why no learner can be reached at the socket file `path`; None if one can."""
    num_bytes = len(os.fsencode(path))
    if num_bytes > MAX_SOCKET_PATH_BYTES:
        return f"it has {num_bytes} bytes, and the system takes {MAX_SOCKET_PATH_BYTES}"
    if "," in path:
        return "gRPC takes a comma for the end of an address"
    if not path.isprintable():
        return "it has characters that cannot be printed"
    return None


def grpc_target(address: str) -> str:
    """Returns `address` as gRPC takes it: a path's "%", "?" and "#" mean something else there."""
    if not is_unix(address):
        return address
    return _UNIX + urllib.parse.quote(os.fsencode(unix_path(address)))


def split_tcp(address: str) -> tuple[str, int]:
    """Returns (host, port) of a "host:port"; an IPv6 host without its brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def address_of_process(address: str, index: int) -> str:
    """Returns the address of one of several processes that serve at `address` together.

    They share a TCP port. A socket file cannot be shared: from the second process on, the
    process's index is appended to the path.
    """
    return f"{address}-{index}" if is_unix(address) and index else address
