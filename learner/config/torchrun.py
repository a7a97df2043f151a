"""This process's place among learners that torchrun started together. Torch-free."""

import os
from typing import NamedTuple

from seed.errors import ConfigError, expected


class Place(NamedTuple):
    """As torchrun's environment variables tell it."""

    rank: int = 0
    """Among all, from 0."""
    size: int = 1
    """How many there are."""
    local_rank: int = 0
    """Among those on this machine."""


def place_from_environment() -> Place:
    """Returns what torchrun says; that of a single learner where it did not start this process.

    Raises:
      ConfigError: RANK, WORLD_SIZE or LOCAL_RANK is no number that can be, or what
        several learners need to find each other is missing.
    """
    place = Place(_number("RANK", 0), _number("WORLD_SIZE", 1), _number("LOCAL_RANK", 0))
    if place.rank >= place.size:
        raise ConfigError(expected("RANK", f"below WORLD_SIZE, {place.size}", place.rank))
    if place.size > 1:
        for name in ("MASTER_ADDR", "MASTER_PORT"):
            if not os.environ.get(name):
                raise ConfigError(
                    expected(name, "set beside WORLD_SIZE, as by torchrun", "nothing")
                )
    return place


def local_address(address: str, place: Place) -> str:
    """Returns where this rank listens if the first of its machine does at `address`.

    "host:port" becomes host:(port + local rank), "unix:PATH" the same path with the
    rank behind it; port 0 is any free one for each.
    """
    if not place.local_rank:
        return address
    if address.startswith("unix:"):
        return f"{address}.{place.local_rank}"
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or port == "0":
        return address
    return f"{host}:{int(port) + place.local_rank}"


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    if not text.isdecimal():
        raise ConfigError(expected(name, "a number, as torchrun sets it", repr(text)))
    return int(text)
