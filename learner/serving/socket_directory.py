"""A private directory for the sockets of local actors, wherever TMPDIR points.

Called by the main thread before anything is served.
"""

import contextlib
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from seed.addresses import MAX_SOCKET_PATH_BYTES, socket_path_problem
from seed.errors import ConfigError, expected

# As long as the longest name in it: "learner.sock-" and the number of an ingress process.
_PROBE = "learner.sock-999"


def make_socket_directory() -> Path:
    """Returns a new directory that only this user can open, and in which sockets can be bound.

    It is in the directory for temporary files (TMPDIR), or else in the first of XDG_RUNTIME_DIR,
    /tmp and /var/tmp that works: the system takes no socket with a long path, and some file
    systems take no socket at all.

    Raises:
      ConfigError: none of them works.
    """
    problems: list[str] = []
    for parent in dict.fromkeys(_candidates()):
        try:
            directory = Path(tempfile.mkdtemp(prefix="seed-", dir=parent))
        except OSError as error:
            problems.append(f"{parent}: {error.strerror}")
            continue
        problem = _problem_with(directory / _PROBE)
        if problem is None:
            return directory
        directory.rmdir()
        problems.append(f"{parent}: {problem}")
    # With these, the path of a socket has at most as many bytes as the system takes.
    most = MAX_SOCKET_PATH_BYTES - len("/seed-12345678/") - len(_PROBE)
    wanted = f"a directory for sockets that can be written, with a name of at most {most} bytes"
    raise ConfigError(expected("TMPDIR", wanted, "; ".join(problems)))


def _candidates() -> Iterator[str]:
    with contextlib.suppress(FileNotFoundError):  # no directory for temporary files is usable
        yield tempfile.gettempdir()
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        yield runtime
    yield from ("/tmp", "/var/tmp")


def _problem_with(path: Path) -> str | None:
    """Returns why no socket can be bound at `path`; None if one can."""
    if problem := socket_path_problem(str(path)):
        return problem
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.bind(os.fsencode(path))
        except OSError as error:
            return error.strerror or str(error)
    path.unlink()
    return None
