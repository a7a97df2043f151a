"""h and its inverse: the paper's formulas in float64, a table, and identities in float32."""

import pytest
import torch
from torch import Tensor

from learner.algos.value_rescaling import inverse_rescale, rescale

EPSILONS = [1e-3, 0.1]


def both_signs(dtype: torch.dtype) -> Tensor:
    """Returns numbers of every size over [-1e4, 1e4], 0 included."""
    sizes = torch.cat([torch.logspace(-8, 4, 2001, dtype=dtype), torch.linspace(0, 1e4, 2001)])
    return torch.cat([-sizes, sizes]).to(dtype)


def literal_rescale(x: Tensor, epsilon: float) -> Tensor:
    """Returns h(x) as in proposition A.2 of Pohlen et al. 2018."""
    return x.sign() * ((x.abs() + 1).sqrt() - 1) + epsilon * x


def literal_inverse(y: Tensor, epsilon: float) -> Tensor:
    """Returns the inverse of h as in the same paper, which needs the digits of float64."""
    root = (1 + 4 * epsilon * (y.abs() + 1 + epsilon)).sqrt()
    return y.sign() * (((root - 1) / (2 * epsilon)) ** 2 - 1)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_h_and_inverse_equal_the_papers_formulas_in_float64(epsilon: float) -> None:
    """The functions under test write the same numbers in another way."""
    x = both_signs(torch.float64)
    for got, expected in (
        (rescale(x, epsilon), literal_rescale(x, epsilon)),
        (inverse_rescale(x, epsilon), literal_inverse(x, epsilon)),
    ):
        # The paper's differences themselves lose some 1e-16 over epsilon, absolute.
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("epsilon", [*EPSILONS, 0.0])
def test_inverse_undoes_h_to_a_millionth_in_float32(epsilon: float) -> None:
    """This holds in both orders, relative to the number itself, on [-1e4, 1e4]."""
    x = both_signs(torch.float32)
    for there_and_back in (
        inverse_rescale(rescale(x, epsilon), epsilon),
        rescale(inverse_rescale(x, epsilon), epsilon),
    ):
        assert there_and_back.dtype == torch.float32
        torch.testing.assert_close(there_and_back, x, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("x", "epsilon", "y"),
    [
        (0.0, 0.5, 0.0),  # h(0) = 0
        (3.0, 0.0, 1.0),  # sqrt(4) - 1
        (-3.0, 0.0, -1.0),
        (8.0, 0.25, 4.0),  # sqrt(9) - 1 + 8 / 4
        (-15.0, 1.0, -18.0),  # -(sqrt(16) - 1) - 15
        (0.5625, 0.0, 0.25),  # sqrt(25 / 16) - 1
    ],
)
def test_h_and_inverse_equal_a_table_worked_by_hand(x: float, epsilon: float, y: float) -> None:
    """The inputs are squares, so that the roots are whole numbers."""
    assert rescale(torch.tensor(x), epsilon).item() == pytest.approx(y, abs=1e-7)
    assert inverse_rescale(torch.tensor(y), epsilon).item() == pytest.approx(x, abs=1e-6)


def test_h_rises_everywhere() -> None:
    """The best action stays the best after rescaling."""
    x = torch.linspace(-1e4, 1e4, 4001)
    assert (rescale(x, 1e-3).diff() > 0).all()
    assert (inverse_rescale(rescale(x, 1e-3), 1e-3).diff() > 0).all()
