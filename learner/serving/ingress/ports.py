"""TCP ports that the learner holds for its ingress processes, which listen there together.

Linux spreads the connections over all sockets that listen at a port with SO_REUSEPORT. The
learner binds a socket that never listens. That socket keeps the port while processes come and
go. It cannot be bound where another server already listens.
"""

import errno
import socket

from seed.addresses import is_unix, split_tcp
from seed.errors import ConfigError, expected


class HeldAddress:
    """An address at which several processes may listen, until `close`."""

    def __init__(self, address: str) -> None:
        """Raises ConfigError if the address cannot be bound, or a server already listens there."""
        self.address = address
        """The address, with the port that was chosen if it was 0."""
        self._sockets: list[socket.socket] = []
        if is_unix(address):
            return
        try:
            self._bind()
        except OSError as error:
            self.close()
            wanted = "an address that can be bound"
            raise ConfigError(expected("listen", wanted, f"{address} ({error})")) from error

    def close(self) -> None:
        """Releases the port."""
        for held in self._sockets:
            held.close()

    def _bind(self) -> None:
        """Binds every address of this machine that the host's name resolves to, as gRPC does.
        Raises OSError if there is none, or if one is taken."""
        host, port = split_tcp(self.address)
        refusal: OSError | None = None
        for family, _, _, _, place in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            held = socket.socket(family, socket.SOCK_STREAM)
            try:
                held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                held.bind((place[0], port, *place[2:]))
            except OSError as error:
                held.close()
                if error.errno == errno.EADDRINUSE:
                    raise
                refusal = error
                continue
            # Set after binding: otherwise a port that other servers share could be bound too.
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self._sockets.append(held)
            port = held.getsockname()[1]
        if refusal is not None and not self._sockets:
            raise refusal
        self.address = f"{self.address.rpartition(':')[0]}:{port}"
