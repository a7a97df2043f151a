"""The epsilon ladder, and how actions are chosen with it."""

import numpy as np
import pytest
import torch

from learner.acting import unrolls
from learner.algos.epsilon_greedy import ladder, select_actions, van_der_corput
from tests.learner.builders import seeded

A = 5


def test_van_der_corput_equals_its_numpy_twin() -> None:
    """They are equal bit for bit, up to the largest slot number."""
    indices = np.concatenate([np.arange(2000), 2 ** np.arange(32), [2**32 - 1, 123_456_789]])
    got = van_der_corput(torch.from_numpy(indices))
    assert got.dtype == torch.float64
    assert got.tolist() == unrolls.van_der_corput(indices).tolist()


def test_ladder_equals_the_formula() -> None:
    """epsilon_i = 0.4^(1 + 7 u_i), with u worked by hand for the first eight slots."""
    fractions = [0, 1 / 2, 1 / 4, 3 / 4, 1 / 8, 5 / 8, 3 / 8, 7 / 8]
    got = ladder(torch.arange(8), base=0.4, exponent=7.0).tolist()
    assert got == pytest.approx([0.4 ** (1 + 7 * u) for u in fractions], rel=1e-12)


def test_ladder_of_a_slot_stays_as_others_join_or_leave() -> None:
    """The epsilon of a slot does not depend on the batch or on the number of slots."""
    everybody = ladder(torch.arange(300), 0.4, 7.0)
    some = torch.tensor([41, 7, 250])
    assert torch.equal(ladder(some, 0.4, 7.0), everybody[some])
    assert torch.equal(ladder(torch.arange(10), 0.4, 7.0), everybody[:10])


@pytest.mark.parametrize("num_slots", [5, 16, 100])
def test_ladder_is_evenly_climbed_by_any_number_of_slots(num_slots: int) -> None:
    """No part of the ladder is left out: neighbours are at most two even steps apart."""
    climbed = van_der_corput(torch.arange(num_slots)).sort().values
    gaps = torch.cat([climbed, torch.ones(1)]).diff()
    assert gaps.max() <= 2 / num_slots


def test_best_action_is_taken_unless_epsilon_says_otherwise() -> None:
    """Any action is taken in a share epsilon of the cases, and the best one in the others."""
    num_rows = 20_000
    q_values = torch.tensor([0.1, 0.3, 0.9, -1.0, 0.2]).expand(num_rows, A)
    for epsilon in (0.0, 0.3, 1.0):
        epsilons = torch.full((num_rows,), epsilon, dtype=torch.float64)
        actions = select_actions(q_values, epsilons, seeded(1))
        assert actions.dtype == torch.int64
        shares = torch.bincount(actions, minlength=A) / num_rows
        expected = torch.full((A,), epsilon / A)
        expected[2] += 1 - epsilon
        # Four standard deviations; none at epsilon 0.
        spread = (expected * (1 - expected) / num_rows).sqrt()
        assert ((shares - expected).abs() <= 4 * spread).all()


def test_epsilon_of_a_row_changes_no_other_row() -> None:
    """Every row draws its numbers, also where it does not need them."""
    q_values = torch.randn(100, A, generator=seeded(2))
    epsilons = torch.full((100,), 0.5, dtype=torch.float64)
    changed = epsilons.clone()
    changed[::2] = 0
    before, after = (select_actions(q_values, x, seeded(3)) for x in (epsilons, changed))
    assert torch.equal(before[1::2], after[1::2])
    assert torch.equal(after[::2], q_values[::2].argmax(-1))
    assert not torch.equal(before[::2], after[::2])
