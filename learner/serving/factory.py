"""Chooses what serves the actors: a thread of the learner, or processes of their own."""

from collections.abc import Callable, Sequence
from typing import Protocol

from learner.serving.ingress.handle import IngressProcesses
from learner.serving.reception import LocalBackend, Reception
from learner.serving.server import ServerThread
from learner.serving.session import Timeouts
from seed.security import PLAIN_TEXT, Security


class Server(Protocol):
    """Serves actors from `start` to `close`."""

    @property
    def pids(self) -> list[int]:
        """Ids of the server's own processes that run now."""
        ...

    def start(self) -> list[str]:
        """Returns the addresses bound (port 0 replaced by the real one). Raises ConfigError."""
        ...

    def complete(self) -> None:
        """Tells all actors that the run is complete: those that are here, and those that come."""
        ...

    def close(self) -> None:
        """Ends every stream, and waits until nothing serves any more."""
        ...


def make_server(
    reception: Reception,
    addresses: Sequence[str],
    on_failure: Callable[[BaseException], None],
    security: Security = PLAIN_TEXT,
    timeouts: Timeouts | None = None,
    *,
    ingress_processes: int = 0,
) -> Server:
    """Returns a server that has not been started.

    Args:
      reception: receives the actors.
      addresses: each "host:port" or "unix:PATH".
      on_failure: called, on any thread, with the error that ends the server.
      security: what actors have to present.
      timeouts: how long actors may take.
      ingress_processes: number of processes that serve; 0: a thread of this process.

    Raises:
      ConfigError: ingress processes on a system that cannot have any.
    """
    if ingress_processes:
        return IngressProcesses(
            reception, addresses, on_failure, security, timeouts, num_processes=ingress_processes
        )
    return ServerThread(
        lambda: LocalBackend(reception),
        addresses,
        on_failure,
        security,
        timeouts,
        reception.limits,
    )
