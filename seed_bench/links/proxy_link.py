"""What `packet_link.py` does, as far as a proxy on one machine can: it needs no rights.

Delays and holds back what TCP carries; a loss is the lateness that TCP makes of it. Used
by `measure_networks.py`.
"""

import contextlib
from collections.abc import Iterator
from typing import Self

from seed_bench.links.tcp_proxy import TcpProxy


class ProxyLink:
    """Stands between a learner and its actors on this machine; like `PacketLink`."""

    kind = "proxy"
    near_host = "127.0.0.1"

    def __init__(self) -> None:
        self.on_near_host: list[str] = []
        self.on_far_host: list[str] = []
        self._proxy: TcpProxy | None = None
        self._delay_s = self._loss = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    @contextlib.contextmanager
    def reaching(self, port: int) -> Iterator[str]:
        """Yields the address by which actors reach a learner at that port."""
        target = f"{self.near_host}:{port}"
        with TcpProxy(target, delay_s=self._delay_s, loss=self._loss) as self._proxy:
            yield self._proxy.address

    def change(self, *, delay_s: float, loss: float) -> None:
        """Makes the network another for what comes from now on."""
        self._delay_s, self._loss = delay_s, loss
        if self._proxy is not None:
            self._proxy.change(delay_s=delay_s, loss=loss)

    def cut(self) -> None:
        """From now on nothing comes through."""
        assert self._proxy is not None, "somebody must be reaching something"
        self._proxy.cut()

    def heal(self) -> None:
        """Ends a cut."""
        assert self._proxy is not None, "somebody must be reaching something"
        self._proxy.heal()
