"""The ring of blocks against plain Python lists, and the rows that sequences share."""

import math
from collections import deque

import numpy as np
import pytest
import torch

from learner.experience.replay.sequence_store import SequenceStore
from learner.records import Completed, Unrolls, flatten, map_tensors
from seed.errors import ConfigError
from tests.learner.builders import assert_same, seeded, tensors_of
from tests.learner.experience.replay.streams import stream_blocks, stream_of, stream_unrolls

# (period, rows of a sequence): of one to nine blocks; the last is full or part-filled.
SHAPES = [(3, 2), (3, 3), (4, 7), (4, 8), (4, 9), (2, 7), (1, 9)]


def insert(store: SequenceStore, completed: Completed) -> tuple[np.ndarray, np.ndarray]:
    """Returns the positions of the blocks, and the heads that became whole."""
    positions = store.claim(completed.slots)
    store.write(positions, completed.unrolls)
    return positions, store.link(positions, completed.slots, completed.follows)


class LiteralStore:
    """The blocks that are held, as (environment, number in its stream), oldest first."""

    def __init__(self, num_blocks: int, blocks_per_sequence: int) -> None:
        self._blocks_per_sequence = blocks_per_sequence
        self._blocks: deque[tuple[int, int]] = deque(maxlen=num_blocks)

    def insert(self, envs: list[int], blocks: list[int]) -> None:
        """Adds blocks, and drops the oldest if there is no room."""
        self._blocks.extend(zip(envs, blocks, strict=True))

    def whole(self) -> set[tuple[int, int]]:
        """Returns the heads of sequences of which every block is held."""
        held = set(self._blocks)
        numbers = range(self._blocks_per_sequence)
        return {(env, n) for env, n in held if all((env, n + k) in held for k in numbers)}


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize(("period", "num_rows"), SHAPES)
def test_store_equals_a_list_of_blocks(period: int, num_rows: int, compress: bool) -> None:
    """Random groups of slots, whose actors leave and come, many times round the ring.

    What was once whole stays whole until its head is overwritten, since the other
    blocks are younger: after every insert every such sequence is its stream's, row by row.
    """
    rng = np.random.default_rng(num_rows)
    store = SequenceStore(
        capacity=7, num_rows=num_rows, period=period, num_slots=4, compress=compress
    )
    literal = LiteralStore(store.num_blocks, store.blocks_per_sequence)
    held: dict[int, tuple[int, int]] = {}
    env_of, next_block, num_envs, num_wholes = [0] * 4, [0] * 4, 0, 0
    for _ in range(250):
        slots = rng.permutation(4)[: rng.integers(1, 5)]
        for slot in slots:
            if next_block[slot] == 0 or rng.random() < 0.05:
                num_envs += 1
                env_of[slot], next_block[slot] = num_envs, 0
        envs, blocks = [env_of[s] for s in slots], [next_block[s] for s in slots]
        positions, heads = insert(store, stream_blocks(envs, blocks, period, slots.tolist()))
        literal.insert(envs, blocks)
        for slot in slots:
            next_block[slot] += 1
        for position in positions.tolist():
            held.pop(position, None)
        for position, (env, row) in zip(heads.tolist(), starts_of(store, heads), strict=True):
            held[position] = (env, row // period)
        assert set(held.values()) == literal.whole()
        num_wholes += len(heads)
        if held:
            envs, starts = [env for env, _ in held.values()], [n * period for _, n in held.values()]
            assert_same(store.gather(np.array([*held])), stream_unrolls(envs, starts, num_rows))
    assert num_wholes > 3 * store.num_blocks


def starts_of(store: SequenceStore, heads: np.ndarray) -> list[tuple[int, int]]:
    """Returns the environments and rows at which sequences start."""
    return stream_of(store.gather(heads)) if len(heads) else []


@pytest.mark.parametrize(("period", "num_rows"), SHAPES)
def test_capacity_is_held_beyond_the_sequences_under_way(period: int, num_rows: int) -> None:
    """The capacity counts whole sequences, beside the newest blocks of each slot."""
    store = SequenceStore(capacity=10, num_rows=num_rows, period=period, num_slots=3)
    num_held = []
    held: set[int] = set()
    for block in range(40):
        for slot in range(3):
            positions, heads = insert(store, stream_blocks([slot], [block], period))
            held = held - set(positions.tolist()) | set(heads.tolist())
            num_held.append(len(held))
    assert num_held[-30:] == [10] * 30


def test_block_is_as_large_as_the_rows_it_adds() -> None:
    """Rows that a block shares with its neighbours count once."""
    store = SequenceStore(capacity=10, num_rows=9, period=4, num_slots=1)
    example = stream_unrolls([0], [0], 1)
    row_bytes = 3 + 4 + 4 + 8 + 3 + 8 + 8 + 8
    state_bytes = 4 + 3
    assert store.bytes_per_block(example) == 4 * row_bytes + state_bytes


def test_what_is_held_is_what_was_calculated() -> None:
    """This holds block by block, and the size stays once all blocks are written."""
    store = SequenceStore(capacity=3, num_rows=9, period=4, num_slots=1)
    block_bytes = store.bytes_per_block(stream_unrolls([0, 1], [0, 0], 1))
    held = []
    for block in range(store.num_blocks + 3):
        insert(store, stream_blocks([0], [block], 4))
        held.append(store.held_bytes / block_bytes)
    assert held == [1, 2, 3, 4, 5, 5, 5, 5]


def screens(period: int, rng_seed: int) -> Completed:
    """Returns a block whose screens are noise, the same noise in all of its rows."""
    completed = stream_blocks([0], [0], period)
    noise = torch.randint(0, 256, (64, 64), generator=seeded(rng_seed)).to(torch.uint8)
    screens = noise.expand(period + 1, 1, 64, 64)
    steps, state = completed.unrolls
    steps = steps._replace(rows=steps.rows._replace(observations=(screens,)))
    return completed._replace(unrolls=Unrolls(steps, state))


def test_compressed_blocks_take_what_does_not_repeat() -> None:
    """A still screen is held once a block, even if it is noise; other leaves stay as large."""
    plain, compressed = (
        SequenceStore(capacity=3, num_rows=8, period=8, num_slots=1, compress=compress)
        for compress in (False, True)
    )
    for number in range(7):
        for store in (plain, compressed):
            insert(store, screens(8, number))
    saved = plain.held_bytes - compressed.held_bytes
    assert saved / plain.num_blocks == pytest.approx(7 * 64 * 64, rel=0.02)
    heads = np.arange(3)
    assert_same(compressed.gather(heads), plain.gather(heads))


def test_sequences_do_not_reach_across_a_new_actor() -> None:
    """The first row of the new actor belongs to another game."""
    store = SequenceStore(capacity=10, num_rows=7, period=4, num_slots=1)
    wholes = []
    for env, block in [(1, 0), (1, 1), (2, 0), (2, 1)]:
        _, heads = insert(store, stream_blocks([env], [block], 4, slots=[5]))
        wholes += starts_of(store, heads)
    assert wholes == [(1, 0), (2, 0)]


def test_slot_slower_than_a_round_of_the_ring_starts_a_new_chain() -> None:
    """Its last block is overwritten by then, and must not be linked to."""
    store = SequenceStore(capacity=2, num_rows=7, period=4, num_slots=2)
    insert(store, stream_blocks([0], [0], 4))
    for block in range(store.num_blocks):
        insert(store, stream_blocks([1], [block], 4))
    _, heads = insert(store, stream_blocks([0], [1], 4))
    assert len(heads) == 0
    _, heads = insert(store, stream_blocks([0], [2], 4))
    assert starts_of(store, heads) == [(0, 4)]


def test_generation_counts_the_rounds_of_the_ring() -> None:
    """Position and generation together name one block of all that were ever written."""
    store = SequenceStore(capacity=3, num_rows=3, period=3, num_slots=1)
    seen = []
    for block in range(7):
        positions, _ = insert(store, stream_blocks([0], [block], 3))
        seen.append((positions[0], store.generations(positions)[0]))
    assert seen == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (0, 2)]
    assert store.generations(np.arange(3)).tolist() == [2, 1, 1]


def test_outcomes_are_the_sequence_without_what_the_network_saw() -> None:
    """A first priority needs little else, and the observations are nearly all of the bytes."""
    store = SequenceStore(capacity=3, num_rows=5, period=4, num_slots=1)
    insert(store, stream_blocks([3], [0], 4))
    _, heads = insert(store, stream_blocks([3], [1], 4))
    whole = store.gather(heads)
    rows = whole.steps.rows._replace(observations=())
    expected = Unrolls(whole.steps._replace(rows=rows), initial_state={})
    assert_same(store.gather_outcomes(heads), expected)


def test_store_keeps_no_reference_to_what_it_was_given() -> None:
    """Sequences that the store returns share no memory with it either."""
    store = SequenceStore(capacity=3, num_rows=3, period=3, num_slots=1)
    completed = stream_blocks([1], [0], 3)
    _, heads = insert(store, completed)
    for tensor in tensors_of(completed.unrolls):
        tensor.zero_()
    before = store.gather(heads)
    map_tensors(lambda x: x.zero_(), store.gather(heads))
    assert_same(store.gather(heads), before)
    assert_same(before, stream_unrolls([1], [0], 3))


def without_outputs(unrolls: Unrolls) -> Unrolls:
    """Returns unrolls without states and policy outputs."""
    return Unrolls(unrolls.steps._replace(policy_outputs={}), initial_state={})


def test_unrolls_without_state_or_outputs_are_stored_too() -> None:
    """A feed-forward network without a frame stack has no state."""
    store = SequenceStore(capacity=3, num_rows=3, period=3, num_slots=1)
    completed = stream_blocks([1], [0], 3)
    _, heads = insert(store, completed._replace(unrolls=without_outputs(completed.unrolls)))
    assert_same(store.gather(heads), without_outputs(stream_unrolls([1], [0], 3)))


@pytest.mark.parametrize(("period", "num_rows"), SHAPES)
def test_more_environments_than_the_ring_can_serve_are_refused(period: int, num_rows: int) -> None:
    """With more they would overwrite each other's blocks, and training would never start."""
    store = SequenceStore(capacity=8, num_rows=num_rows, period=period, num_slots=2)
    between = math.ceil(num_rows / period) - 1
    most = (store.num_blocks - 1) // between if between else store.num_blocks
    slots = [*range(100, 100 + most)]
    for block in range(2):
        insert(store, stream_blocks([*range(most)], [block] * most, period, slots))
    with pytest.raises(ConfigError, match=f"replay_capacity: .*{most + 1} environments"):
        insert(store, stream_blocks([0], [0], period, slots=[0]))


def test_every_tensor_of_a_record_has_a_name() -> None:
    """A tensor that `flatten` leaves out would not be stored."""
    unrolls = stream_unrolls([1], [0], 3)
    assert len(flatten(unrolls)) == len([*tensors_of(unrolls)])


def test_leaves_of_former_names_are_refused() -> None:
    """A checkpoint from before "steps" is refused by name, and nothing is restored."""
    store, fresh = (SequenceStore(capacity=3, num_rows=3, period=3, num_slots=1) for _ in range(2))
    insert(store, stream_blocks([1], [0], 3))
    former = {name.replace("/steps/", "/"): x for name, x in store.state_dict().items()}
    assert "arrays/actions" in former
    with pytest.raises(ValueError, match="replay: expected leaves named steps/..., got "):
        fresh.load_state_dict(former)
    assert (fresh.num_filled, fresh.held_bytes) == (0, 0)
    fresh.load_state_dict(store.state_dict())
    assert_same(fresh.gather(np.array([0])), stream_unrolls([1], [0], 3))
