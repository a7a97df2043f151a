"""Who serves the actors: a thread of the learner, or processes of their own."""

from collections.abc import Callable, Sequence

from learner.serving.ingress.handle import IngressProcesses
from learner.serving.reception import LocalBackend, Reception
from learner.serving.server import ServerThread
from learner.serving.session import Patience
from seed.security import PLAIN_TEXT, Security


def make_server(
    reception: Reception,
    addresses: Sequence[str],
    on_failure: Callable[[BaseException], None],
    security: Security = PLAIN_TEXT,
    patience: Patience | None = None,
    *,
    ingress_processes: int = 0,
) -> ServerThread | IngressProcesses:
    """Returns a server that has not been started.

    Args:
      reception: what actors are received by.
      addresses: each "host:port" or "unix:PATH".
      on_failure: takes what ends the server, on any thread.
      security: what actors have to show.
      patience: how long they may take.
      ingress_processes: how many serve; 0: a thread of this process.

    Raises:
      ConfigError: ingress processes on a system that cannot have any.
    """
    if ingress_processes:
        return IngressProcesses(
            reception, addresses, on_failure, security, patience, num_processes=ingress_processes
        )
    return ServerThread(
        lambda: LocalBackend(reception),
        addresses,
        on_failure,
        security,
        patience,
        reception.limits,
    )
