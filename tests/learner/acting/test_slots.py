"""The state of each slot, and how it is kept from step to step."""

import torch
from torch import Tensor

from learner.acting.slots import SlotStates
from learner.records import State
from learner.serving.slot_allocator import SlotAllocator
from tests.learner.builders import seeded

CPU = torch.device("cpu")


def initial_state(batch_size: int, device: torch.device) -> State:
    """Returns a state unlike zeros, so that a slot that was never set up shows."""
    return {
        "lstm/hidden": torch.full((batch_size, 3), 0.5, device=device),
        "frames/screen": torch.full((batch_size, 2, 4), 7, dtype=torch.uint8, device=device),
    }


def random_state(batch_size: int, generator: torch.Generator) -> State:
    """Returns a state that differs in every slot."""
    frames = torch.randint(256, (batch_size, 2, 4), generator=generator)
    return {
        "lstm/hidden": torch.randn(batch_size, 3, generator=generator),
        "frames/screen": frames.to(torch.uint8),
    }


def test_high_water_counts_slots_in_use_at_once() -> None:
    """Actors that come and go in turns use the same slot."""
    allocator = SlotAllocator()
    for _ in range(5):
        allocator.release(allocator.allocate(4))
    assert allocator.high_water == 4


def test_fresh_slots_hold_the_initial_state() -> None:
    """The network defines the initial state, which need not be zeros."""
    states = SlotStates(initial_state, CPU)
    states.grow(4)
    state, actions = states.gather(torch.tensor([3, 0]))
    assert_equal(state, initial_state(2, CPU))
    assert actions.tolist() == [0, 0]
    assert actions.dtype == torch.int64


def test_scattered_state_comes_back_by_slot() -> None:
    """States come back in the order asked for, and the slots in between keep theirs."""
    states, stored = SlotStates(initial_state, CPU), random_state(3, seeded())
    states.grow(8)
    states.scatter(torch.tensor([6, 1, 4]), stored, torch.tensor([10, 11, 12]))
    state, actions = states.gather(torch.tensor([1, 6, 4, 5]))
    chosen = {name: x[[1, 0, 2]] for name, x in stored.items()}
    untouched = initial_state(1, CPU)
    assert_equal(state, {name: torch.cat([chosen[name], untouched[name]]) for name in chosen})
    assert actions.tolist() == [11, 10, 12, 0]


def test_growing_keeps_what_is_held() -> None:
    """A store that grows keeps its states; growing to a smaller size does nothing."""
    states, stored = SlotStates(initial_state, CPU), random_state(2, seeded())
    states.grow(2)
    states.scatter(torch.tensor([0, 1]), stored, torch.tensor([3, 4]))
    for capacity in (5, 3):
        states.grow(capacity)
        assert states.capacity == 5
        state, actions = states.gather(torch.tensor([0, 1, 4]))
        fresh = initial_state(1, CPU)
        assert_equal(state, {name: torch.cat([stored[name], fresh[name]]) for name in stored})
        assert actions.tolist() == [3, 4, 0]


def test_gathered_state_is_a_copy() -> None:
    """The copy goes into an unroll, which must not change when the slot changes."""
    states = SlotStates(initial_state, CPU)
    states.grow(2)
    slots = torch.tensor([0, 1])
    state, actions = states.gather(slots)
    states.scatter(slots, random_state(2, seeded()), torch.tensor([1, 2]))
    assert_equal(state, initial_state(2, CPU))
    assert actions.tolist() == [0, 0]


def test_network_without_state_still_has_last_actions() -> None:
    """A network without an LSTM and a frame stack has no state, and the action is still kept."""
    states = SlotStates(lambda batch_size, device: {}, CPU)
    states.grow(2)
    states.scatter(torch.tensor([1]), {}, torch.tensor([3]))
    state, actions = states.gather(torch.tensor([0, 1]))
    assert state == {}
    assert actions.tolist() == [0, 3]


def assert_equal(got: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Asserts that names, dtypes and bits are the same."""
    assert got.keys() == expected.keys()
    for name, wanted in expected.items():
        assert got[name].dtype == wanted.dtype
        assert torch.equal(got[name], wanted), name
