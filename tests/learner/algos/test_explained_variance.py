"""Explained variance: closed forms, and parts of a batch that add up."""

import numpy as np
import pytest
import torch
from torch import Tensor

from learner.algos.explained_variance import (
    MOMENTS,
    explained_variance,
    moments,
    with_explained_variance,
)
from tests.learner.builders import seeded


def sums_of(*parts: tuple[Tensor, Tensor, Tensor]) -> dict[str, float]:
    """Returns the sums of the parts (predictions, targets, mask) added up."""
    each = [moments(*part) for part in parts]
    return {name: float(sum(part[name] for part in each)) for name in MOMENTS}


def explained(predictions: list[float], targets: list[float]) -> float | None:
    """Returns the explained variance where all steps are valid."""
    mask = torch.ones(1, len(targets))
    return explained_variance(sums_of((torch.tensor([predictions]), torch.tensor([targets]), mask)))


@pytest.mark.parametrize(
    ("predictions", "expected"),
    [
        ([1.0, 2.0, 3.0, 6.0], 1.0),
        # A constant error is no variance.
        ([6.0, 7.0, 8.0, 11.0], 1.0),
        ([3.0, 3.0, 3.0, 3.0], 0.0),
        # Var[target] = 3.5; the errors are -1, 0, 1, 2 with variance 1.25.
        ([2.0, 2.0, 2.0, 4.0], 1 - 1.25 / 3.5),
        # Of the wrong sign: Var[2 target] = 4 Var[target].
        ([-1.0, -2.0, -3.0, -6.0], -3.0),
    ],
)
def test_closed_forms(predictions: list[float], expected: float) -> None:
    """The targets are 1, 2, 3 and 6."""
    assert explained(predictions, [1.0, 2.0, 3.0, 6.0]) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("targets", [[5.0, 5.0, 5.0], [0.0, 0.0, 0.0], [2.0], [1e4, 1e4 + 1]])
def test_targets_that_hardly_differ_leave_nothing_to_explain(targets: list[float]) -> None:
    """No division by 0, and no rounding error that looks like a score."""
    assert explained([0.0] * len(targets), targets) is None


def test_masked_steps_do_not_count() -> None:
    """Their predictions and targets may be anything; a mask of zeros explains nothing."""
    predictions, targets = torch.tensor([[2.0, 2, 9, 2, 4]]), torch.tensor([[1.0, 2, -7, 3, 6]])
    mask = torch.tensor([[1.0, 1, 0, 1, 1]])
    got = explained_variance(sums_of((predictions, targets, mask)))
    assert got == pytest.approx(1 - 1.25 / 3.5)
    assert explained_variance(sums_of((predictions, targets, torch.zeros(1, 5)))) is None


def test_parts_add_up_to_the_whole() -> None:
    """The result is that of NumPy on all valid steps, which a mean over parts would not be."""
    generator = seeded()
    parts = []
    for size in (3, 7):
        targets = torch.randn(20, size, generator=generator) + size
        predictions = targets + 0.5 * torch.randn(20, size, generator=generator)
        parts.append(
            (predictions, targets, (torch.rand(20, size, generator=generator) < 0.7).float())
        )
    flat = [torch.cat([part[i].flatten() for part in parts]).double().numpy() for i in range(3)]
    predictions, targets = flat[0][flat[2] > 0], flat[1][flat[2] > 0]
    expected = 1 - np.var(targets - predictions) / np.var(targets)
    assert explained_variance(sums_of(*parts)) == pytest.approx(expected, rel=1e-4)


def test_metric_takes_the_place_of_the_sums() -> None:
    """It is left out where there is nothing to explain."""
    targets = torch.tensor([[1.0, 2.0]])
    sums = sums_of((targets, targets, torch.ones(1, 2)))
    expected = {"loss/total": 3.0, "value/explained_variance": 1.0}
    assert with_explained_variance({"loss/total": 3.0} | sums) == expected
    sums = sums_of((targets, targets, torch.zeros(1, 2)))
    assert with_explained_variance({"loss/total": 3.0} | sums) == {"loss/total": 3.0}
