"""Unrolls pass from one process to another: none is lost or mixed, in groups of any size."""

import multiprocessing
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from learner.concurrency.stopping import Stopped
from learner.records import Completed, Unrolls, concatenate_unrolls, map_tensors, select_unrolls
from learner.training.process.unroll_ring import UnrollReader, UnrollWriter, make_unroll_ring
from tests.learner.builders import (
    SCREEN,
    SPEED,
    TIMEOUT_S,
    assert_same,
    env_spec,
    in_thread,
    random_unrolls,
    seeded,
)

NUM_ROWS = 4
NUM_PLACES = 5


def some_unrolls(count: int, rng_seed: int = 0) -> Completed:
    """Returns unrolls with an image, a vector and a state, all different."""
    generator = seeded(rng_seed)
    state = {"lstm/hidden": torch.randn((count, 3), generator=generator)}
    unrolls = random_unrolls(env_spec(SCREEN, SPEED), NUM_ROWS, count, state, generator)
    rng = np.random.default_rng(rng_seed)
    return Completed(unrolls, rng.permutation(count) + 7 * rng_seed, rng.random(count) < 0.5)


def part_of(completed: Completed, start: int, stop: int) -> Completed:
    """Returns a range of the unrolls of a group."""
    chosen = slice(start, stop)
    unrolls = select_unrolls(completed.unrolls, start, stop)
    return Completed(unrolls, completed.slots[chosen], completed.follows[chosen])


def example() -> Unrolls:
    """Returns one row as acting stores it."""
    unrolls = select_unrolls(some_unrolls(1).unrolls, 0, 1)
    stateless = unrolls._replace(initial_state={})
    return map_tensors(lambda x: x[:1], stateless)._replace(initial_state=unrolls.initial_state)


@pytest.fixture
def ring() -> Iterator[tuple[UnrollWriter, UnrollReader]]:
    """Both ends of an empty ring."""
    write_end, read_end = multiprocessing.Pipe()
    held = make_unroll_ring(example(), unroll_length=NUM_ROWS - 1, num_places=NUM_PLACES)
    yield UnrollWriter(held, write_end), UnrollReader(held, read_end)
    write_end.close()
    read_end.close()


def read(reader: UnrollReader, count: int) -> Completed:
    """Reads until `count` unrolls have come."""
    parts = [reader.get()]
    while sum(part.unrolls.num_unrolls for part in parts) < count:
        parts.append(reader.get())
    return Completed(
        concatenate_unrolls([part.unrolls for part in parts]),
        np.concatenate([part.slots for part in parts]),
        np.concatenate([part.follows for part in parts]),
    )


def assert_equal(one: Completed, other: Completed) -> None:
    """Asserts that unrolls, slots and follows are equal."""
    assert_same(one.unrolls, other.unrolls)
    assert one.slots.tolist() == other.slots.tolist()
    assert one.follows.tolist() == other.follows.tolist()


def test_unrolls_come_out_as_they_went_in(ring: tuple[UnrollWriter, UnrollReader]) -> None:
    """They keep their order, several times around the ring, in groups that do not divide it."""
    writer, reader = ring
    for number, count in enumerate([1, 3, 5, 2, 4, 5, 1]):
        written = some_unrolls(count, number)
        writer.put(written)
        assert_equal(read(reader, count), written)


def test_group_larger_than_the_ring_passes_through(
    ring: tuple[UnrollWriter, UnrollReader],
) -> None:
    """The writer waits for room as often as it needs to."""
    writer, reader = ring
    written = some_unrolls(3 * NUM_PLACES + 2)
    writing = in_thread(lambda: writer.put(written))
    assert_equal(read(reader, 3 * NUM_PLACES + 2), written)
    writing.result(TIMEOUT_S)


def test_what_was_read_is_not_overwritten(ring: tuple[UnrollWriter, UnrollReader]) -> None:
    """The reader has copies, so the writer may use the places at once."""
    writer, reader = ring
    first = some_unrolls(NUM_PLACES, 1)
    writer.put(first)
    received = reader.get()
    writer.put(some_unrolls(NUM_PLACES, 2))
    assert_equal(received, first)


def test_full_ring_holds_as_many_unrolls_as_it_has_places(
    ring: tuple[UnrollWriter, UnrollReader],
) -> None:
    """Unrolls that have not been read stay as they were written."""
    writer, reader = ring
    written = some_unrolls(NUM_PLACES)
    for place in range(NUM_PLACES):
        writer.put(part_of(written, place, place + 1))
    late = in_thread(lambda: writer.put(some_unrolls(2, 9)))
    assert_equal(read(reader, NUM_PLACES), written)
    late.result(TIMEOUT_S)
    assert_equal(read(reader, 2), some_unrolls(2, 9))


def test_writer_of_a_full_ring_is_told_when_the_reader_is_gone(
    ring: tuple[UnrollWriter, UnrollReader],
) -> None:
    """The writer may wait at that moment, or write later."""
    writer, reader = ring
    writer.put(some_unrolls(NUM_PLACES))
    waiting = in_thread(lambda: writer.put(some_unrolls(1)))
    reader.close()
    for _ in range(2):
        with pytest.raises(Stopped):
            waiting.result(TIMEOUT_S)
        waiting = in_thread(lambda: writer.put(some_unrolls(1)))


def test_reader_is_told_when_the_writer_is_gone() -> None:
    """The writer's process has ended, so no unroll will come."""
    write_end, read_end = multiprocessing.Pipe()
    held = make_unroll_ring(example(), unroll_length=NUM_ROWS - 1, num_places=NUM_PLACES)
    reading = in_thread(UnrollReader(held, read_end).get)
    write_end.close()
    with pytest.raises(Stopped):
        reading.result(TIMEOUT_S)
