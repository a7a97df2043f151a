"""Unrolls on their way from the inference thread to the trainer process.

A ring of places in shared memory, and a pipe: the writer sends how many places it has
filled, the reader how many are free again. A full ring blocks the writer, as a full queue
would. If one end closes, or its process dies, the other end raises `Stopped`.

    place      0    1    2    3    4    5
               .    full full full .    .      writer goes on at 4, reader at 1
"""

from multiprocessing.connection import Connection
from typing import NamedTuple

import torch
from torch import Tensor

from learner.concurrency.shared_tensors import SharedFile
from learner.concurrency.stopping import Stopped
from learner.records import Completed, Unrolls, map_tensors, select_unrolls


class UnrollRing(NamedTuple):
    """Memory that writer and reader share."""

    unrolls: Unrolls
    """[T + 1, places]."""
    slots: Tensor
    """int64 [places]."""
    follows: Tensor
    """bool [places]."""

    @property
    def num_places(self) -> int:
        return len(self.slots)


def make_unroll_ring(example: Unrolls, *, unroll_length: int, num_places: int) -> UnrollRing:
    """Returns an empty ring for unrolls of rows like `example` [1, 1, ...]."""
    file = SharedFile()
    steps = map_tensors(
        lambda x: file.zeros((unroll_length + 1, num_places, *x.shape[2:]), x.dtype), example.steps
    )
    state = map_tensors(
        lambda x: file.zeros((num_places, *x.shape[1:]), x.dtype), example.initial_state
    )
    return UnrollRing(
        Unrolls(steps, state),
        slots=file.zeros((num_places,), torch.int64),
        follows=file.zeros((num_places,), torch.bool),
    )


class UnrollWriter:
    """The inference thread's end."""

    def __init__(self, ring: UnrollRing, connection: Connection) -> None:
        self._ring = ring
        self._connection = connection
        self._place = 0
        self._num_free = ring.num_places

    def put(self, completed: Completed) -> None:
        """Copies unrolls into the ring; blocks while it is full. Raises Stopped."""
        done, total = 0, completed.unrolls.num_unrolls
        while done < total:
            self._reclaim()
            count = min(total - done, self._num_free, self._ring.num_places - self._place)
            self._write(completed, done, count)
            done += count

    def _reclaim(self) -> None:
        """Counts the places that were read; waits for one if none is free."""
        try:
            while not self._num_free or self._connection.poll():
                self._num_free += self._connection.recv()
        except (EOFError, OSError) as error:
            raise Stopped from error

    def _write(self, completed: Completed, start: int, count: int) -> None:
        place, stop = self._place, start + count
        map_tensors(
            lambda held, unrolls: held.copy_(unrolls),
            select_unrolls(self._ring.unrolls, place, place + count),
            select_unrolls(completed.unrolls, start, stop),
        )
        for held, values in (
            (self._ring.slots, completed.slots),
            (self._ring.follows, completed.follows),
        ):
            held[place : place + count] = torch.from_numpy(values[start:stop])
        try:
            self._connection.send(count)
        except OSError as error:
            raise Stopped from error
        self._place = (place + count) % self._ring.num_places
        self._num_free -= count


class UnrollReader:
    """The trainer process's end."""

    def __init__(self, ring: UnrollRing, connection: Connection) -> None:
        self._ring = ring
        self._connection = connection
        self._place = 0

    def get(self) -> Completed:
        """Returns copies of the unrolls written next; blocks for them. Raises Stopped."""
        try:
            count = self._connection.recv()
        except (EOFError, OSError) as error:
            raise Stopped from error
        place, stop = self._place, self._place + count
        completed = Completed(
            map_tensors(torch.clone, select_unrolls(self._ring.unrolls, place, stop)),
            self._ring.slots[place:stop].numpy().copy(),
            self._ring.follows[place:stop].numpy().copy(),
        )
        try:
            self._connection.send(count)
        except OSError as error:
            raise Stopped from error
        self._place = stop % self._ring.num_places
        return completed

    def close(self) -> None:
        """Ends reading; the writer then raises Stopped."""
        self._connection.close()
