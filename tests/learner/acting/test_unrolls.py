"""Steps become unrolls, compared with plain Python lists for each slot."""

from collections import defaultdict

import numpy as np
import pytest
import torch

from learner.acting.unrolls import UnrollStore, van_der_corput
from learner.records import State, Unrolls, map_tensors
from tests.learner.builders import (
    GEAR,
    SCREEN,
    assert_same,
    env_spec,
    numbered_unrolls,
    numbers_of,
    random_unrolls,
    seeded,
    tensors_of,
)

CPU = torch.device("cpu")
SPEC = env_spec(SCREEN, GEAR)


def random_state(num_envs: int, generator: torch.Generator) -> State:
    """Returns the state before a row of a network with LSTM and frame stack."""
    frames = torch.randint(256, (num_envs, 2, 5, 6), generator=generator).to(torch.uint8)
    return {"lstm/hidden": torch.randn(num_envs, 3, generator=generator), "frames": frames}


def random_step(num_envs: int, generator: torch.Generator, *, with_state: bool = True) -> Unrolls:
    """Returns one row [1, N] in which no two environments are alike."""
    state = random_state(num_envs, generator) if with_state else {}
    return random_unrolls(SPEC, 1, num_envs, state, generator)


def time_slice(unrolls: Unrolls, which: slice) -> Unrolls:
    """Returns some rows of all unrolls; the initial state stays that of row 0."""
    return unrolls._replace(steps=map_tensors(lambda x: x[which], unrolls.steps))


def column(record: Unrolls, which: slice) -> Unrolls:
    """Returns copies of some environments of a record."""
    state = {name: x[which].clone() for name, x in record.initial_state.items()}
    return Unrolls(map_tensors(lambda x: x[:, which].clone(), record.steps), state)


class LiteralStore:
    """What `UnrollStore` computes, as lists of rows, one for each slot."""

    def __init__(self, unroll_length: int, block_size: int) -> None:
        self._num_rows = unroll_length + 1
        self._block_size = block_size
        self._open: defaultdict[int, list[Unrolls]] = defaultdict(list)
        self._left_out: defaultdict[int, int] = defaultdict(int)

    def begin(self, slots: np.ndarray) -> None:
        """Empties the lists of `slots`; staggered ones then leave out some rows."""
        for slot in slots.tolist():
            self._open[slot] = []
            # Up to 9 slots in blocks of at least 1, so block numbers have 4 bits.
            block = slot // self._block_size if self._block_size else 0
            mirrored = int(f"{block:04b}"[::-1], 2)
            self._left_out[slot] = mirrored * (self._num_rows - 1) // 16

    def append(self, slots: np.ndarray, step: Unrolls) -> list[Unrolls]:
        """Returns the completed unrolls, B = 1 each, in the order of `slots`."""
        completed = []
        for index, slot in enumerate(slots.tolist()):
            if self._left_out[slot]:
                self._left_out[slot] -= 1
                continue
            rows = self._open[slot]
            rows.append(column(step, slice(index, index + 1)))
            if len(rows) == self._num_rows:
                steps = map_tensors(lambda *xs: torch.cat(xs), *(row.steps for row in rows))
                completed.append(Unrolls(steps, rows[0].initial_state))
                self._open[slot] = [rows[-1]]
        return completed


@pytest.mark.parametrize("with_state", [True, False], ids=["state", "stateless"])
@pytest.mark.parametrize("unroll_length", [1, 2, 5])
@pytest.mark.parametrize("block_size", [0, 1, 3])
def test_store_equals_lists_of_rows(unroll_length: int, with_state: bool, block_size: int) -> None:
    """The test mixes slots at random, grows the store, and starts new actors, for 200 steps."""
    rng, generator = np.random.default_rng(unroll_length), seeded(unroll_length)
    store = UnrollStore(unroll_length, CPU, block_size=block_size)
    literal = LiteralStore(unroll_length, block_size)
    capacity, num_completed, most_at_once = 1, 0, 0
    for _ in range(200):
        if rng.random() < 0.1:
            capacity = min(capacity + int(rng.integers(1, 4)), 9)
        store.grow(capacity)
        if rng.random() < 0.1:
            leaving = rng.choice(capacity, size=rng.integers(1, capacity + 1), replace=False)
            store.begin(leaving)
            literal.begin(leaving)
        slots = rng.choice(capacity, size=rng.integers(1, capacity + 1), replace=False)
        step = random_step(len(slots), generator, with_state=with_state)
        completed, expected = store.append(slots, step), literal.append(slots, step)
        assert (len(completed.slots) if completed else 0) == len(expected)
        for index, wanted in enumerate(expected):
            assert completed is not None
            assert_same(column(completed.unrolls, slice(index, index + 1)), wanted)
        num_completed += len(expected)
        most_at_once = max(most_at_once, len(expected))
    assert num_completed > 20
    assert most_at_once > 1


def filled(store: UnrollStore, slots: list[int], steps: list[Unrolls]) -> list[Unrolls]:
    """Returns the unrolls that appending `steps` to `slots` completes."""
    completed = [store.append(np.array(slots), step) for step in steps]
    return [group.unrolls for group in completed if group is not None]


def test_unroll_shares_one_row_with_the_next() -> None:
    """An unroll has T + 1 rows, and its last row is the first row of the next."""
    store, generator = UnrollStore(4, CPU, block_size=0), seeded()
    store.grow(2)
    steps = [random_step(1, generator) for _ in range(9)]
    first, second = filled(store, [1], steps)
    assert first.steps.actions.shape == second.steps.actions.shape == (5, 1)
    shared = time_slice(first, slice(4, 5))._replace(initial_state={})
    assert_same(shared, time_slice(second, slice(0, 1))._replace(initial_state={}))
    for t, step in enumerate(steps[4:]):
        row = time_slice(second, slice(t, t + 1))
        assert_same(row._replace(initial_state={}), step._replace(initial_state={}))


def test_initial_state_is_the_one_before_row_0() -> None:
    """This holds for the first unroll, and for the next, whose row 0 came T steps later."""
    store, generator = UnrollStore(3, CPU, block_size=0), seeded()
    store.grow(1)
    steps = [random_step(1, generator) for _ in range(10)]
    for number, unrolls in enumerate(filled(store, [0], steps)):
        for name, wanted in steps[3 * number].initial_state.items():
            assert torch.equal(unrolls.initial_state[name], wanted)


def test_no_unroll_before_its_last_row() -> None:
    """T rows hold only T - 1 transitions."""
    store, generator = UnrollStore(4, CPU, block_size=0), seeded()
    store.grow(1)
    assert not filled(store, [0], [random_step(1, generator) for _ in range(4)])
    assert filled(store, [0], [random_step(1, generator)])


def test_new_actor_discards_what_its_predecessor_left() -> None:
    """Rows of two actors never share an unroll, and other slots are not affected."""
    store = UnrollStore(2, CPU, block_size=0)
    store.grow(2)
    assert not filled(store, [0, 1], [numbered_unrolls([1, 2], 1)] * 2)
    store.begin(np.array([0]))
    (unrolls,) = filled(store, [0, 1], [numbered_unrolls([3, 2], 1)])
    assert numbers_of(unrolls) == [2]
    assert not filled(store, [0], [numbered_unrolls([3], 1)])
    (unrolls,) = filled(store, [0], [numbered_unrolls([3], 1)])
    assert numbers_of(unrolls) == [3]


def test_completed_unrolls_tell_their_slot_and_whether_they_follow() -> None:
    """The first unroll of a slot follows none, and so does the first of its next actor."""
    store, generator = UnrollStore(2, CPU, block_size=0), seeded()
    store.grow(3)

    def complete(slots: list[int], num_rows: int) -> list[tuple[list[int], list[bool]]]:
        groups = [store.append(np.array(slots), random_step(2, generator)) for _ in range(num_rows)]
        return [(g.slots.tolist(), g.follows.tolist()) for g in groups if g is not None]

    store.begin(np.arange(3))
    assert complete([2, 0], 5) == [([2, 0], [False, False]), ([2, 0], [True, True])]
    store.begin(np.array([0]))
    assert complete([0, 2], 2) == [([2], [True])]
    assert complete([0, 2], 3) == [([0], [False]), ([2], [True]), ([0], [True])]


def test_blocks_of_slots_complete_their_unrolls_apart() -> None:
    """If all slots completed at once, the queue would fill and its unrolls would grow stale."""
    store, generator = UnrollStore(4, CPU, block_size=2), seeded()
    slots = np.arange(8)
    store.grow(8)
    store.begin(slots)
    completed = [store.append(slots, random_step(8, generator)) for _ in range(12)]
    counts = [len(group.slots) if group else 0 for group in completed]
    assert counts == [0, 0, 0, 0, *[2] * 8]


def test_van_der_corput_halves_the_largest_gap() -> None:
    """The first 8 of the sequence."""
    expected = [0, 1 / 2, 1 / 4, 3 / 4, 1 / 8, 5 / 8, 3 / 8, 7 / 8]
    assert van_der_corput(np.arange(8)).tolist() == expected


def test_completed_unrolls_come_in_the_order_of_the_slots_given() -> None:
    """Each unroll has its own rows, for any order of slots in the batch."""
    store = UnrollStore(1, CPU, block_size=0)
    store.grow(4)
    filled(store, [3, 0, 2], [numbered_unrolls([30, 1, 20], 1)])
    (unrolls,) = filled(store, [2, 3, 0], [numbered_unrolls([20, 30, 1], 1)])
    assert numbers_of(unrolls) == [20, 30, 1]


def test_emitted_unrolls_share_no_memory_with_the_store() -> None:
    """The trainer reads emitted unrolls while the store writes its slots again."""
    store, generator = UnrollStore(2, CPU, block_size=0), seeded()
    store.grow(2)
    (unrolls,) = filled(store, [0, 1], [random_step(2, generator) for _ in range(3)])
    before = map_tensors(torch.clone, unrolls)
    later = filled(store, [0, 1], [random_step(2, generator) for _ in range(4)])
    assert_same(unrolls, before)
    storages = {x.untyped_storage().data_ptr() for x in tensors_of(unrolls)}
    for other in later:
        assert storages.isdisjoint(x.untyped_storage().data_ptr() for x in tensors_of(other))


def test_store_keeps_no_reference_to_what_it_was_given() -> None:
    """Inference loads its next batch into the same buffers."""
    store, buffers = UnrollStore(2, CPU, block_size=0), numbered_unrolls([0], 1)
    store.grow(1)
    completed = None
    for number in (1, 2, 3):
        for held, new in zip(
            tensors_of(buffers), tensors_of(numbered_unrolls([number], 1)), strict=True
        ):
            held.copy_(new)
        completed = store.append(np.array([0]), buffers)
    assert completed is not None
    assert completed.unrolls.steps.actions.flatten().tolist() == [1, 2, 3]
    assert completed.unrolls.initial_state["memory"].flatten().tolist() == [1]


def test_unrolls_of_steps_made_in_inference_mode_can_be_trained_on() -> None:
    """Autograd refuses inference tensors, so the store emits none."""
    store, generator = UnrollStore(1, CPU, block_size=0), seeded()
    store.grow(1)
    with torch.inference_mode():
        steps = [random_step(1, generator) for _ in range(2)]
    (unrolls,) = filled(store, [0], steps)
    assert not any(x.is_inference() for x in tensors_of(unrolls))
