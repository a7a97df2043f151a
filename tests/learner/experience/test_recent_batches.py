"""The window over the newest batches."""

from learner.experience.recent_batches import RecentBatches
from tests.learner.builders import numbered_unrolls, numbers_of


def test_window_slides_over_batches() -> None:
    """Each batch is trained on as often as the window is wide, as in the table of the docstring."""
    recent = RecentBatches(3)
    a, b, c, d = (numbered_unrolls([n, n + 1]) for n in (10, 20, 30, 40))
    assert numbers_of(recent.add(a)) == [10, 11]
    assert numbers_of(recent.add(b)) == [10, 11, 20, 21]
    assert numbers_of(recent.add(c)) == [10, 11, 20, 21, 30, 31]
    assert numbers_of(recent.add(d)) == [20, 21, 30, 31, 40, 41]


def test_window_of_one_passes_batches_on() -> None:
    """The batches are returned as they are, without a copy."""
    recent, batch = RecentBatches(1), numbered_unrolls([1, 2])
    recent.add(numbered_unrolls([7]))
    assert recent.add(batch) is batch
