"""The tree of sums against cumulative sums, and where float rounding is worst."""

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.experience.replay.sum_tree import LARGEST_PRIORITY, SumTree
from tests.learner.builders import seeded

# Of the chi-square distribution of 40 degrees of freedom: exceeded once in 1000 tries.
CHI_SQUARE_40 = 73.4


def tree_of(priorities: np.ndarray) -> SumTree:
    """Returns a tree with these leaves."""
    tree = SumTree(len(priorities))
    tree.set(np.arange(len(priorities)), priorities)
    return tree


@pytest.mark.parametrize("capacity", [1, 2, 3, 7, 64, 1000])
def test_find_equals_search_in_cumulative_sums(capacity: int) -> None:
    """The leaves are whole numbers, a third of them 0, so that all sums are exact."""
    rng = np.random.default_rng(capacity)
    priorities = rng.integers(1, 10, capacity) * (rng.random(capacity) < 0.7).astype(float)
    priorities[rng.integers(capacity)] = 3
    tree = tree_of(priorities)
    assert tree.total == priorities.sum()
    masses = rng.random(500) * tree.total
    found = tree.find(masses)
    assert np.array_equal(found, np.searchsorted(priorities.cumsum(), masses, side="right"))


def test_leaves_are_found_as_often_as_a_dense_sampler_would() -> None:
    """The chi-square test uses 41 leaves with priorities of all sizes."""
    rng = np.random.default_rng(0)
    priorities = rng.random(41) ** 3 + 0.01
    num_draws = 100_000
    found = tree_of(priorities).find(rng.random(num_draws) * priorities.sum())
    expected = num_draws * priorities / priorities.sum()
    statistic = ((np.bincount(found, minlength=41) - expected) ** 2 / expected).sum()
    assert statistic < CHI_SQUARE_40


def test_sample_takes_one_leaf_from_each_equal_part() -> None:
    """A large leaf fills whole parts, and at most two parts partly."""
    priorities = np.random.default_rng(0).random(20)
    tree, generator = tree_of(priorities), seeded()
    expected = 100 * priorities / priorities.sum()
    counts = [np.bincount(tree.sample(100, generator), minlength=20) for _ in range(200)]
    assert np.abs(counts - expected).max() < 2
    # 6 standard errors of a mean of 200 counts, whose variance is at most 1/2.
    assert np.abs(np.mean(counts, axis=0) - expected).max() < 6 * math.sqrt(0.5 / 200)


def test_sets_in_any_order_leave_what_was_set_last() -> None:
    """The sums do not drift: they are those of a new tree, to the last bit."""
    rng = np.random.default_rng(0)
    tree, literal = SumTree(100), np.zeros(100)
    for _ in range(300):
        indices = rng.integers(100, size=rng.integers(1, 30))
        priorities = rng.random(len(indices)) * 10.0 ** rng.integers(-20, 20, len(indices))
        tree.set(indices, priorities)
        for index, priority in zip(indices, priorities, strict=True):
            literal[index] = priority
    assert np.array_equal(tree.get(np.arange(100)), literal)
    assert tree.total == tree_of(literal).total


def test_of_equal_indices_the_last_wins() -> None:
    """A batch may hold a sequence twice."""
    tree = SumTree(4)
    tree.set(np.array([2, 1, 2]), np.array([5.0, 3.0, 7.0]))
    assert tree.get(np.arange(4)).tolist() == [0, 3, 7, 0]
    assert tree.total == 10


def test_total_forgets_what_was_large() -> None:
    """Differences would keep the rounding error of 1e16."""
    tree = tree_of(np.array([0.1, 1e16, 0.2]))
    tree.set(np.array([1]), np.array([0.0]))
    assert tree.total == 0.1 + 0.2
    tree.set(np.array([0, 2]), np.array([0.0, 0.0]))
    assert tree.total == 0


PRIORITIES = st.sampled_from([0.0, 5e-324, 1e-300, 1e-16, 0.1, 1.0, 1e16, 1e300])
FRACTIONS = st.sampled_from([0.0, 5e-324, 1e-16, 0.1, 0.5, 1 - 2**-53, 1.0, 2.0])


@given(st.lists(PRIORITIES, min_size=1, max_size=20).filter(any), st.lists(FRACTIONS))
@settings(max_examples=300, deadline=None, derandomize=True, database=None)
def test_leaf_of_priority_0_is_never_found(priorities: list[float], parts: list[float]) -> None:
    """This holds for any rounding, for masses up to the total and beyond."""
    tree = tree_of(np.array(priorities))
    masses = np.array([*parts, *priorities, *np.cumsum(priorities)])
    masses = np.concatenate([masses, masses[: len(parts)] * tree.total])
    assert tree.get(tree.find(masses)).min() > 0
    assert tree.get(tree.sample(7, seeded())).min() > 0


@pytest.mark.parametrize("bad", [-1.0, -1e-300, math.nan, math.inf, 2 * LARGEST_PRIORITY])
def test_value_that_is_not_a_priority_is_refused(bad: float) -> None:
    """The whole call is refused, so that the sums stay right."""
    tree = tree_of(np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match=re.escape(f", got {bad}")):
        tree.set(np.array([0, 1]), np.array([3.0, bad]))
    assert tree.get(np.arange(2)).tolist() == [1, 2]
    assert tree.total == 3
