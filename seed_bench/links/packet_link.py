"""A network of two hosts that is far away, loses packets or is cut: for Linux, with root.

Makes two network namespaces, each with a TUN device. A thread of the caller's process carries
IP packets from one to the other. It delays and drops packets below the kernel's own TCP,
as netem does where the kernel has it. Used by `seed_bench/studies/links.py`.
"""

import contextlib
import fcntl
import os
import random
import select
import shutil
import struct
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Self

_TUN = "/dev/net/tun"
_TUNSETIFF = 0x400454CA
_IFF_TUN_NO_PI = 0x1001  # bare IP packets

# Reserved for benchmarks of networks (RFC 2544), so that no real host has these addresses.
_NEAR, _FAR = "198.18.0.1", "198.18.0.2"

_LARGEST_PACKET = 1 << 16
# Large enough that a link whose thread is slow loses no packets.
_QUEUE_PACKETS = 10_000
# Longest wait until the thread sees that a packet is due or the link closes.
_POLL_S = 0.05


def may_be_made() -> bool:
    """Tells whether this process can make a `PacketLink`: Linux, root and the command `ip`."""
    return os.access(_TUN, os.W_OK) and os.geteuid() == 0 and shutil.which("ip") is not None


class PacketLink:
    """Joins two hosts during a `with` block; `change`, `cut` and `heal` act at once."""

    kind = "packets"
    near_host = _NEAR
    """Address of the near host, at which a learner may listen."""

    def __init__(self, rng_seed: int = 0) -> None:
        """`rng_seed` decides which packets are lost."""
        self._delay_s = 0.0
        self._loss = 0.0
        self._is_cut = False
        self._random = random.Random(rng_seed)
        self._names = [f"seed-{side}-{os.getpid()}" for side in ("near", "far")]
        self._ends: list[int] = []
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._carry, name="packet-link", daemon=True)

    @property
    def on_near_host(self) -> list[str]:
        """First words of a command that runs on the near host."""
        return ["ip", "netns", "exec", self._names[0]]

    @property
    def on_far_host(self) -> list[str]:
        """First words of a command that runs on the far host."""
        return ["ip", "netns", "exec", self._names[1]]

    @contextlib.contextmanager
    def reaching(self, port: int) -> Iterator[str]:
        """Yields the address by which the far host reaches a port of the near one."""
        yield f"{_NEAR}:{port}"

    def change(self, *, delay_s: float, loss: float) -> None:
        """Sets delay and loss of the packets sent from now on.

        Args:
          delay_s: one way, of every packet.
          loss: probability that a packet is lost, either way.
        """
        self._delay_s, self._loss = delay_s, loss

    def cut(self) -> None:
        """From now on every packet is lost."""
        self._is_cut = True

    def heal(self) -> None:
        """Ends a cut."""
        self._is_cut = False

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.callback(self._take_down)
            for index, address in enumerate((_NEAR, _FAR)):
                self._ends.append(
                    _make_host(self._names[index], f"sd{os.getpid()}{index}", address)
                )
            stack.pop_all()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._closing.set()
        self._thread.join()
        self._take_down()

    def _take_down(self) -> None:
        for end in self._ends:
            os.close(end)
        for name in self._names:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)

    def _carry(self) -> None:
        # For each direction: packets with their due times, in order, because a link never reorders.
        under_way: list[deque[tuple[float, bytes]]] = [deque(), deque()]
        while not self._closing.is_set():
            now = time.monotonic()
            for packets, end in zip(under_way, reversed(self._ends), strict=True):
                while packets and packets[0][0] <= now:
                    # If the device is full or going down, the packet is lost, as on any link.
                    with contextlib.suppress(OSError):
                        os.write(end, packets.popleft()[1])
            waits_s = [packets[0][0] - now for packets in under_way if packets]
            readable, _, _ = select.select(self._ends, [], [], max(0, min([_POLL_S, *waits_s])))
            for end in readable:
                self._take_in(end, under_way[self._ends.index(end)])

    def _take_in(self, end: int, packets: deque[tuple[float, bytes]]) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                packet = os.read(end, _LARGEST_PACKET)
                if self._is_cut or self._random.random() < self._loss:
                    continue
                packets.append((time.monotonic() + self._delay_s, packet))


def _make_host(name: str, device: str, address: str) -> int:
    """Makes a namespace with one device; returns the end from which its packets come."""
    end = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK)
    # The device is made in this namespace and then moved: it stays joined to the file.
    fcntl.ioctl(end, _TUNSETIFF, struct.pack("16sH22x", device.encode(), _IFF_TUN_NO_PI))
    inside = ["ip", "-n", name]
    for command in (
        ["ip", "netns", "add", name],
        ["ip", "link", "set", device, "netns", name],
        [*inside, "address", "add", f"{address}/24", "dev", device],
        [*inside, "link", "set", "lo", "up"],
        [*inside, "link", "set", device, "up", "txqueuelen", str(_QUEUE_PACKETS)],
    ):
        subprocess.run(command, check=True)
    return end
