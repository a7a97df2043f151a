"""The slots that are given out, and when they are given out again."""

import random

import numpy as np

from learner.serving.slot_allocator import SlotAllocator


def test_allocator_gives_the_lowest_free_slots() -> None:
    """The stores then stay as small as the number of environments."""
    allocator = SlotAllocator()
    assert allocator.allocate(3).tolist() == [0, 1, 2]
    assert allocator.allocate(2).tolist() == [3, 4]
    allocator.release(np.array([3, 1]))
    assert allocator.allocate(3).tolist() == [1, 3, 5]
    assert allocator.high_water == 6


def test_allocator_never_gives_a_held_slot_twice() -> None:
    """A thousand random arrivals and departures, against a plain set."""
    rng, allocator = random.Random(0), SlotAllocator()
    held: list[np.ndarray] = []
    for _ in range(1000):
        if held and rng.random() < 0.5:
            allocator.release(held.pop(rng.randrange(len(held))))
            continue
        taken = {slot for slots in held for slot in slots.tolist()}
        count = rng.randint(1, 5)
        free = (slot for slot in range(10_000) if slot not in taken)
        slots = allocator.allocate(count)
        assert slots.dtype == np.int64
        assert slots.tolist() == [next(free) for _ in range(count)]
        held.append(slots)
