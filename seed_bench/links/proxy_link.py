"""Replaces `packet_link.py` where a process has no rights to make networks.

A TCP proxy on this machine delays the bytes between two hosts. It cannot lose a packet. Instead
it adds the delay after which TCP would send the packet again. Used by
`seed_bench/studies/links.py`.
"""

import contextlib
from collections.abc import Iterator
from typing import Self

from seed_bench.links.tcp_proxy import TcpProxy


class ProxyLink:
    """Joins a learner and its actors on this machine; has the methods of `PacketLink`."""

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
        """Sets delay and loss of the bytes sent from now on."""
        self._delay_s, self._loss = delay_s, loss
        if self._proxy is not None:
            self._proxy.change(delay_s=delay_s, loss=loss)

    def cut(self) -> None:
        """Holds back all bytes until `heal`."""
        assert self._proxy is not None, "only inside `reaching`"
        self._proxy.cut()

    def heal(self) -> None:
        """Ends a cut."""
        assert self._proxy is not None, "only inside `reaching`"
        self._proxy.heal()
