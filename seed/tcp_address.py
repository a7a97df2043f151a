"""What would be right instead of a text that is no "host:port".

Used by `seed.addresses` when flags are read. Looks no name up: each side does that when it
connects or listens, because what a name stands for may change.
"""

import ipaddress
import re

MAX_PORT = 65_535

_FORM = "host:port or unix:PATH"
_PORT = re.compile(r"[0-9]+")
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://+(?P<rest>.*)")
# A part of a name between dots. Names of Docker's services may have "_".
_LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,62}")
_MAX_NAME_CHARS = 253


def wanted_instead(address: str, *, any_port: bool) -> str | None:
    """Returns what is expected instead of `address`; None if it is a "host:port".

    Args:
      any_port: port 0 is right too, because a listener then takes any free port.
    """
    if not address:
        return _FORM
    if any(character.isspace() for character in address):
        return f"{_FORM} without spaces"
    if (right := _mended(address)) is not None:
        return f"{_FORM}, such as {right}"
    host, _, port = address.rpartition(":")
    lowest = 0 if any_port else 1
    if not _PORT.fullmatch(port) or not lowest <= int(port) <= MAX_PORT:
        return f"host:port with a port of {lowest} .. {MAX_PORT}"
    if not (_is_ipv6(_unbracketed(host)) or is_host(host)):
        return "host:port with a host's name or IP address"
    return None


def is_host(text: str) -> bool:
    """Tells whether `text` is an IP address, without brackets, or can be a host's name."""
    if _is_ip(text):
        return True
    labels = text.removesuffix(".").split(".")
    is_name = len(text) <= _MAX_NAME_CHARS and all(map(_LABEL.fullmatch, labels))
    # A name whose last part is a number would be taken for an IPv4 address.
    return is_name and not labels[-1].isdecimal()


def _mended(address: str) -> str | None:
    """Returns what is meant by an address with a common mistake; None if it has none of them."""
    if match := _SCHEME.fullmatch(address):
        rest = match["rest"].strip("/")
        return f"unix:/{rest or 'PATH'}" if match["scheme"].lower() == "unix" else rest or "h:50051"
    if address.lower().startswith("unix:"):
        return f"unix:{address[5:] or 'PATH'}"
    if address.startswith(("/", "./", "../", "~/")):
        return f"unix:{address}"
    if "/" in address:
        return address.partition("/")[0]
    if _PORT.fullmatch(address.removeprefix(":")):
        return f"127.0.0.1:{address.removeprefix(':')}"
    host, _, port = address.rpartition(":")
    if _is_ipv6(host):
        return f"[{host}]:{port}"
    if _is_ipv6(_unbracketed(address)):
        return f"[{_unbracketed(address)}]:50051"
    return f"{address}:50051" if is_host(address) else None


def _unbracketed(text: str) -> str:
    """Returns the X of "[X]", and any other text as it is."""
    return text[1:-1] if text.startswith("[") and text.endswith("]") else text


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_ipv6(text: str) -> bool:
    return ":" in text and _is_ip(text)
