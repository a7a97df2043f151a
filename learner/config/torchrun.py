"""This process's place among learners that torchrun started together. Torch-free."""

import os
from typing import NamedTuple

from seed.errors import ConfigError, expected


class Place(NamedTuple):
    """The numbers in torchrun's environment variables."""

    rank: int = 0
    """Number of this learner among all, from 0."""
    size: int = 1
    """Number of learners."""
    local_rank: int = 0
    """Number of this learner among those on this machine."""


def place_from_environment() -> Place:
    """Returns the place that torchrun set; without torchrun, the place of a single learner.

    Raises:
      ConfigError: RANK, WORLD_SIZE or LOCAL_RANK is no valid number, or a variable is missing
        by which several learners find each other.
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
    """Returns where this rank listens if the first rank of its machine listens at `address`.

    "host:port" becomes host:(port + local rank). In "unix:PATH" the rank is appended to the
    path. Port 0 stays 0: any free port for each rank.
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
