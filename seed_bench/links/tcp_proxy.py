"""A network that is far away, loses packets, or is cut, between an actor and its learner.

A TCP proxy in this process, for tests that may not make a network of their own. It shows the
effects of such a network on TCP: lost packets come late and hold up those behind them, and during
a cut the connection stays open and silent.
"""

import asyncio
import contextlib
import random
import threading
from collections.abc import Coroutine
from typing import Any, Self

_CHUNK_BYTES = 16 * 1024

# The delay of a lost packet: Linux's shortest retransmission timeout.
_RETRANSMISSION_S = 0.2


class TcpProxy:
    """Forwards 127.0.0.1:port to `target` during a `with` block."""

    def __init__(
        self, target: str, *, delay_s: float = 0.0, loss: float = 0.0, rng_seed: int = 0
    ) -> None:
        """Chooses what the network is like.

        Args:
          target: "unix:PATH" or "host:port"; its server may start and stop at any time.
          delay_s: one way; a round trip takes twice as long.
          loss: probability that a chunk of up to 16 KiB is lost and sent again.
          rng_seed: decides which chunks are lost.
        """
        self.address = ""
        self._target = target
        self._delay_s = delay_s
        self._loss = loss
        self._generator = random.Random(rng_seed)
        self._loop = asyncio.new_event_loop()
        self._is_whole = asyncio.Event()
        self._is_whole.set()
        self._pipes: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *exc: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def change(self, *, delay_s: float, loss: float) -> None:
        """Sets delay and loss of the chunks sent from now on; see `__init__`."""
        self._delay_s, self._loss = delay_s, loss

    def cut(self) -> None:
        """Holds back all bytes, both ways, until `heal`; connections stay open."""
        self._loop.call_soon_threadsafe(self._is_whole.clear)

    def heal(self) -> None:
        """Ends a cut: sends the bytes that were held back, and all later ones."""
        self._loop.call_soon_threadsafe(self._is_whole.set)

    def reset(self) -> None:
        """Breaks all connections, as a router that was restarted does."""

        async def cancel() -> None:
            for pipe in self._pipes:
                pipe.cancel()

        self._run(cancel())

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _close(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._is_whole.wait()
            there_reader, there_writer = await self._connect()
        except OSError:
            writer.close()
            return
        pipe = asyncio.create_task(
            _until_either_ends(
                self._forward(reader, there_writer), self._forward(there_reader, writer)
            )
        )
        self._pipes.add(pipe)
        try:
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await pipe
        finally:
            self._pipes.discard(pipe)
            for end in (writer, there_writer):
                end.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._target.startswith("unix:"):
            return await asyncio.open_unix_connection(self._target.removeprefix("unix:"))
        host, _, port = self._target.rpartition(":")
        return await asyncio.open_connection(host, int(port))

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes on one direction, each chunk at its due time, in order."""
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def receive() -> None:
            data = b"-"
            while data:
                try:
                    data = await reader.read(_CHUNK_BYTES)
                except ConnectionError:  # a reset, e.g. by a process killed before it read all
                    data = b""
                late_s = _RETRANSMISSION_S if self._generator.random() < self._loss else 0.0
                under_way.put_nowait((self._loop.time() + self._delay_s + late_s, data))

        receiving = asyncio.create_task(receive())
        try:
            while True:
                due_s, data = await under_way.get()
                await asyncio.sleep(due_s - self._loop.time())
                await self._is_whole.wait()
                if not data:
                    return
                writer.write(data)
                await writer.drain()
        finally:
            receiving.cancel()


async def _until_either_ends(*directions: Coroutine[Any, Any, None]) -> None:
    tasks = [asyncio.ensure_future(direction) for direction in directions]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
