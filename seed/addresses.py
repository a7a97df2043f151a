"""Addresses as users write them: "host:port", or "unix:PATH" for a socket file.

Used by both sides and the health check, when flags are read.
"""

import ipaddress

from seed.errors import ConfigError, expected

MAX_PORT = 65_535

_UNIX = "unix:"


def check_address(field: str, address: str) -> None:
    """Raises ConfigError naming `field` if `address` is neither "host:port" nor "unix:PATH".

    gRPC makes something of everything: "localhost" would be port 443.
    """
    if is_unix(address) and len(address) > len(_UNIX):
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > MAX_PORT:
        raise ConfigError(expected(field, f"host:port (0 .. {MAX_PORT}) or unix:PATH", address))


def check_metrics_port(port: int | None) -> None:
    """Raises ConfigError if `port` is no TCP port; 0 is for any free one, None for none."""
    if port is not None and not 0 <= port <= MAX_PORT:
        raise ConfigError(expected("metrics_port", f"0 .. {MAX_PORT}", port))


def is_unix(address: str) -> bool:
    """Tells whether `address` is a socket file of this machine."""
    return address.startswith(_UNIX)


def is_local(address: str) -> bool:
    """Tells whether only this machine's own processes can be at the other end."""
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


def split_tcp(address: str) -> tuple[str, int]:
    """Returns (host, port) of a "host:port"; an IPv6 host without its brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def address_of_process(address: str, index: int) -> str:
    """Returns where one of several processes listens that serve at `address` together.

    They share a TCP port, but not a socket file: from the second process on, the path has
    the process's index behind it.
    """
    return f"{address}-{index}" if is_unix(address) and index else address
