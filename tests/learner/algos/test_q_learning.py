"""TD errors, losses and priorities against plain sums in float64, and their gradients."""

import math
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from learner.algos.q_learning import (
    MIN_PRIORITY,
    double_q_values,
    sequence_losses,
    sequence_means,
    sequence_priorities,
    td_errors,
)

T, B, A = 7, 20, 3


class Case(NamedTuple):
    """Inputs of `td_errors` under its own argument names."""

    online_q: Tensor
    target_q: Tensor
    actions: Tensor
    rewards: Tensor
    discounts: Tensor
    mask: Tensor
    n_step: int = 3
    rescale_epsilon: float = 1e-2

    def solve(self) -> Tensor:
        """Returns the result of `td_errors` for this case."""
        return td_errors(**self._asdict())


def random_case(rng_seed: int = 0) -> Case:
    """Returns a float64 case with ends of both kinds, independent of one another."""
    generator = torch.Generator().manual_seed(rng_seed)

    def normal(*shape: int) -> Tensor:
        return 3 * torch.randn(*shape, generator=generator, dtype=torch.float64)

    ends = torch.rand(2, T, B, generator=generator) < 0.2
    return Case(
        online_q=normal(T + 1, B, A),
        target_q=normal(T + 1, B, A),
        actions=torch.randint(A, (T, B), generator=generator),
        rewards=normal(T, B),
        discounts=0.9 * (~ends[0]).double(),
        mask=(~ends[1]).double(),
    )


def h(x: float, epsilon: float) -> float:
    """Returns h(x) by its definition."""
    return math.copysign(math.sqrt(abs(x) + 1) - 1, x) + epsilon * x


def h_inverse(y: float, epsilon: float) -> float:
    """The closed form of Pohlen et al. 2018, proposition A.2."""
    root = math.sqrt(1 + 4 * epsilon * (abs(y) + 1 + epsilon))
    return math.copysign(((root - 1) / (2 * epsilon)) ** 2 - 1, y)


def literal_td_error(case: Case, t: int, b: int) -> float:
    """Returns delta_t of sequence b by the definition, in plain Python."""
    if not case.mask[t, b]:
        return 0.0

    def bootstrap(row: int) -> float:
        best = max(range(A), key=lambda a: case.online_q[row, b, a].item())
        return h_inverse(case.target_q[row, b, best].item(), case.rescale_epsilon)

    total, weight = 0.0, 1.0
    for i in range(1, case.n_step + 1):
        total += weight * case.rewards[t + i - 1, b].item()
        weight *= case.discounts[t + i - 1, b].item()
        if i == case.n_step or t + i == T or not case.mask[t + i, b]:
            total += weight * bootstrap(t + i)
            break
    return h(total, case.rescale_epsilon) - case.online_q[t, b, case.actions[t, b]].item()


@pytest.mark.parametrize("n_step", [1, 3, T + 1])
def test_td_errors_equal_the_literal_sum(n_step: int) -> None:
    """The errors are masked and rescaled, with online argmax and the target network's value."""
    case = random_case(n_step)._replace(n_step=n_step)
    expected = [[literal_td_error(case, t, b) for b in range(B)] for t in range(T)]
    twin = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(case.solve(), twin, rtol=1e-10, atol=1e-10)


def test_double_q_takes_the_argmax_of_one_and_the_value_of_the_other() -> None:
    """The target is the maximum of neither network."""
    online = torch.tensor([[1.0, 5.0, 3.0]])
    target = torch.tensor([[9.0, -2.0, 4.0]])
    assert double_q_values(online, target).tolist() == [-2.0]
    assert double_q_values(target, online).tolist() == [1.0]


def test_gradient_flows_through_the_chosen_online_q_of_valid_steps_alone() -> None:
    """The gradient there is -delta, that of 1/2 delta^2; the last row and all targets get none."""
    case = random_case()
    for leaf in (case.online_q, case.target_q, case.rewards):
        leaf.requires_grad_()
    errors = case.solve()
    sequence_losses(errors).sum().backward()
    expected = torch.zeros(T + 1, B, A, dtype=torch.float64)
    expected[:-1].scatter_(-1, case.actions.unsqueeze(-1), -errors.detach().unsqueeze(-1))
    assert case.online_q.grad is not None
    torch.testing.assert_close(case.online_q.grad, expected)
    assert (expected[:-1].any(-1) == case.mask.bool()).all()
    assert case.target_q.grad is None
    assert case.rewards.grad is None


def test_losses_and_priorities_equal_a_table_worked_by_hand() -> None:
    """Two sequences, eta = 3/4; the masked step counts in no sum and no mean.

    delta        3  -4   0 (masked)     loss (9 + 16) / 2      priority 3/4 4 + 1/4 7/2
                 1   1  -1                   3/2                        3/4 1 + 1/4 1
    """
    errors = torch.tensor([[3.0, 1.0], [-4.0, 1.0], [0.0, -1.0]])
    mask = torch.tensor([[1.0, 1.0], [1.0, 1.0], [0.0, 1.0]])
    assert sequence_losses(errors).tolist() == [12.5, 1.5]
    assert sequence_priorities(errors, mask, 0.75).tolist() == [3.875, 1.0]
    assert sequence_means(errors + 1, mask).tolist() == [0.5, pytest.approx(4 / 3)]


@pytest.mark.parametrize("mix", [0.0, 0.9, 1.0])
def test_priorities_equal_the_literal_mix(mix: float) -> None:
    """Priorities lie between the mean and the largest error, in float64."""
    case = random_case(4)
    errors = case.solve()
    got = sequence_priorities(errors, case.mask, mix)
    for b in range(B):
        sizes = [abs(errors[t, b].item()) for t in range(T) if case.mask[t, b]]
        expected = mix * max(sizes) + (1 - mix) * sum(sizes) / len(sizes)
        assert got[b].item() == pytest.approx(expected, rel=1e-12)


def test_sequence_without_a_valid_step_is_never_drawn_and_any_other_may_be() -> None:
    """Its priority is 0; that of any other sequence is above 0, however well it is predicted."""
    errors = torch.zeros(2, 2, requires_grad=True)
    mask = torch.tensor([[0.0, 0.0], [0.0, 1.0]])
    priorities = sequence_priorities(errors, mask, 0.9)
    assert priorities.dtype == torch.float32
    assert priorities.tolist() == [0.0, pytest.approx(MIN_PRIORITY)]
    assert not priorities.requires_grad
    assert sequence_means(errors, mask).tolist() == [0.0, 0.0]
