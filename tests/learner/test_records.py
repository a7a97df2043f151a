"""Rows become transitions, and records are cut, joined and flattened as batches."""

import pytest
import torch

from learner.records import (
    Batch,
    Rows,
    Steps,
    Unrolls,
    concatenate_unrolls,
    flatten,
    index_unrolls,
    map_tensors,
    select_unrolls,
    tensors_of,
    transitions,
    unflatten,
)
from tests.learner.builders import (
    GEAR,
    SCREEN,
    assert_same,
    env_spec,
    numbered_unrolls,
    numbers_of,
    random_rows,
    random_unrolls,
    seeded,
)


def flags(*rows: int) -> torch.Tensor:
    """Returns bool [T, 1]."""
    return torch.tensor(rows, dtype=torch.bool).unsqueeze(1)


def rows_of(
    *, rewards: list[float], is_first: list[int], terminated: list[int], truncated: list[int]
) -> Rows:
    """Returns rows [T, 1] of one environment."""
    num_rows = len(rewards)
    return Rows(
        observations=(torch.zeros(num_rows, 1, 3),),
        rewards=torch.tensor(rewards).unsqueeze(1),
        previous_actions=torch.zeros(num_rows, 1, dtype=torch.int64),
        is_first=flags(*is_first),
        terminated=flags(*terminated),
        truncated=flags(*truncated),
    )


def test_steps_into_and_out_of_a_terminated_row() -> None:
    """The step o5 -> o6 has discount 0, and o6 -> o0 is no step (drawn in learner/records.py)."""
    rows = rows_of(
        rewards=[5, 6, 0, 1], is_first=[0, 0, 1, 0], terminated=[0, 1, 0, 0], truncated=[0, 0, 0, 0]
    )
    steps = transitions(rows, 0.9)
    assert steps.rewards.flatten().tolist() == [6, 0, 1]
    assert steps.mask.flatten().tolist() == [1, 0, 1]
    assert steps.discounts[0].item() == 0
    assert steps.discounts[2].item() == pytest.approx(0.9)


def test_truncated_row_bootstraps() -> None:
    """The return goes on: the step o5 -> o6 keeps its discount, and o6 -> o0 is no step."""
    rows = rows_of(
        rewards=[5, 6, 0, 1], is_first=[0, 0, 1, 0], terminated=[0, 0, 0, 0], truncated=[0, 1, 0, 0]
    )
    steps = transitions(rows, 0.9)
    assert steps.mask.flatten().tolist() == [1, 0, 1]
    assert steps.discounts[0].item() == pytest.approx(0.9)


def test_lost_life_ends_the_return_and_nothing_else() -> None:
    """No first row follows the terminated row, so the next step is taken and trained."""
    rows = rows_of(
        rewards=[1, 2, 3, 4], is_first=[0, 0, 0, 0], terminated=[0, 1, 0, 0], truncated=[0, 0, 0, 0]
    )
    steps = transitions(rows, 0.9)
    assert steps.mask.flatten().tolist() == [1, 1, 1]
    assert steps.discounts.flatten().tolist() == pytest.approx([0, 0.9, 0.9])
    assert steps.rewards.flatten().tolist() == [2, 3, 4]


def test_transitions_equal_a_loop_over_rows() -> None:
    """The test tries every combination of flags, each environment alone."""
    rows = random_rows(env_spec(), 20, 6, seeded())
    steps = transitions(rows, 0.97)
    for t in range(19):
        for b in range(6):
            assert steps.rewards[t, b] == rows.rewards[t + 1, b]
            assert steps.mask[t, b] == (0 if rows.is_first[t + 1, b] else 1)
            discount = 0 if rows.terminated[t + 1, b] else 0.97
            assert steps.discounts[t, b].item() == pytest.approx(discount)
    assert {x.dtype for x in steps} == {torch.float32}


def test_map_tensors_keeps_the_structure() -> None:
    """Named tuples, tuples and dicts keep their types."""
    unrolls = numbered_unrolls([1, 2])
    doubled = map_tensors(lambda x, y: x + y, unrolls, unrolls)
    assert type(doubled) is type(unrolls)
    steps, twice = unrolls.steps, doubled.steps
    assert type(twice) is Steps
    assert type(twice.rows) is Rows
    assert torch.equal(twice.rows.observations[0], 2 * steps.rows.observations[0])
    assert torch.equal(twice.policy_outputs["logits"], 2 * steps.policy_outputs["logits"])
    assert torch.equal(doubled.initial_state["memory"], 2 * unrolls.initial_state["memory"])


def test_concatenated_unrolls_keep_order_and_states() -> None:
    """Time stays the first axis, and the states, which have no time, are joined too."""
    merged = concatenate_unrolls([numbered_unrolls([1, 2]), numbered_unrolls([3])])
    assert merged.num_unrolls == 3
    assert numbers_of(merged) == [1, 2, 3]


def test_selected_unrolls_are_those_asked_for() -> None:
    """They are a range of the batch, with its states."""
    unrolls = numbered_unrolls([1, 2, 3, 4])
    assert numbers_of(select_unrolls(unrolls, 1, 3)) == [2, 3]
    parts = [select_unrolls(unrolls, 0, 1), select_unrolls(unrolls, 1, 4)]
    assert numbers_of(concatenate_unrolls(parts)) == [1, 2, 3, 4]


def test_indexed_unrolls_are_copies_of_those_asked_for() -> None:
    """They come in the order asked for."""
    unrolls = numbered_unrolls([1, 2, 3, 4])
    chosen = index_unrolls(unrolls, torch.tensor([3, 1]))
    unrolls.steps.actions.fill_(0)
    assert numbers_of(chosen) == [4, 2]


def test_records_without_state_concatenate() -> None:
    """A network without memory has no state."""
    parts = [numbered_unrolls([n])._replace(initial_state={}) for n in (1, 2)]
    assert concatenate_unrolls(parts).initial_state == {}


def test_tensors_of_records_built_alike_correspond() -> None:
    """The order is that of the names, for any order of a dictionary and any content."""
    ours = {"hidden": torch.tensor(1), "cell": torch.tensor(2)}
    theirs = {"cell": torch.tensor(2), "hidden": torch.tensor(1)}
    assert [x.item() for x in tensors_of((torch.tensor(0), ours))] == [0, 2, 1]
    assert tensors_of(theirs) == [theirs["cell"], theirs["hidden"]]


def test_tensors_of_unrolls_are_all_that_map_tensors_sees() -> None:
    """No field is left out."""
    unrolls, seen = numbered_unrolls([0, 1], 2), []
    map_tensors(lambda x: seen.append(x) or x, unrolls)
    found = tensors_of(unrolls)
    assert len(found) == len(seen) and {id(x) for x in found} == {id(x) for x in seen}


def some_unrolls(num_rows: int = 4, num_unrolls: int = 3) -> Unrolls:
    """Returns unrolls with two observations and two states, with slashes in their names."""
    generator = seeded()
    shape = (num_unrolls, 2)
    state = {f"lstm/{name}": torch.randn(shape, generator=generator) for name in ("hidden", "cell")}
    return random_unrolls(env_spec(SCREEN, GEAR), num_rows, num_unrolls, state, generator)


def without(unrolls: Unrolls, part: str) -> Unrolls:
    """Returns unrolls without one of the parts that may be missing."""
    steps = unrolls.steps
    match part:
        case "observations":
            rows = steps.rows._replace(observations=())
            return unrolls._replace(steps=steps._replace(rows=rows))
        case "policy_outputs":
            return unrolls._replace(steps=steps._replace(policy_outputs={}))
        case "initial_state":
            return unrolls._replace(initial_state={})
    return unrolls


@pytest.mark.parametrize("missing", ["nothing", "observations", "policy_outputs", "initial_state"])
def test_flattened_unrolls_come_back(missing: str) -> None:
    """The same tensors are in the same places, and missing parts stay missing."""
    unrolls = without(some_unrolls(), missing)
    back = unflatten(flatten(unrolls))
    assert len(back.steps.rows.observations) == len(unrolls.steps.rows.observations)
    assert back.steps.policy_outputs.keys() == unrolls.steps.policy_outputs.keys()
    assert_same(back, unrolls)
    assert {id(x) for x in tensors_of(back)} == {id(x) for x in tensors_of(unrolls)}


def test_more_than_ten_observations_keep_their_order() -> None:
    """Their paths end in numbers, and "10" sorts before "2" as a text."""
    unrolls = some_unrolls()
    observations = tuple(torch.full((4, 3), float(number)) for number in range(12))
    rows = unrolls.steps.rows._replace(observations=observations)
    back = unflatten(flatten(unrolls._replace(steps=unrolls.steps._replace(rows=rows))))
    assert [x[0, 0].item() for x in back.steps.rows.observations] == [*range(12)]


def test_paths_name_the_fields() -> None:
    """Checkpoints of replays hold the paths, so another name makes a file unreadable."""
    assert list(flatten(numbered_unrolls([1]))) == [
        "steps/rows/observations/0",
        "steps/rows/rewards",
        "steps/rows/previous_actions",
        "steps/rows/is_first",
        "steps/rows/terminated",
        "steps/rows/truncated",
        "steps/actions",
        "steps/policy_outputs/logits",
        "steps/policy_versions",
        "initial_state/memory",
    ]


def test_flatten_and_tensors_of_agree() -> None:
    """Both have all tensors in one order, also for dictionaries filled in another."""
    unrolls = some_unrolls()
    assert list(unrolls.initial_state) == ["lstm/hidden", "lstm/cell"]
    named = list(flatten(unrolls).values())
    assert [id(x) for x in named] == [id(x) for x in tensors_of(unrolls)]


def test_map_tensors_keeps_none() -> None:
    """A batch that was sampled evenly has no weights before and after."""
    batch = Batch(numbered_unrolls([1, 2]))
    moved = map_tensors(torch.clone, batch)
    assert type(moved) is Batch
    assert moved.importance_weights is None
    assert numbers_of(moved.unrolls) == [1, 2]
    weighed = batch._replace(importance_weights=torch.tensor([1.0, 0.5]))
    halved = map_tensors(lambda x: x / 2, weighed)
    assert halved.importance_weights.tolist() == [0.5, 0.25]


def test_every_tensor_of_steps_is_time_major() -> None:
    """One function slices a row of all of them, and the properties return T and B."""
    steps = some_unrolls(num_rows=4, num_unrolls=3).steps
    assert {tuple(x.shape[:2]) for x in tensors_of(steps)} == {(4, 3)}
    assert (steps.num_rows, steps.batch_size) == (4, 3)
    row = map_tensors(lambda x: x[1:2], steps)
    assert {tuple(x.shape[:2]) for x in tensors_of(row)} == {(1, 3)}
