"""Losses against their closed-form gradients, and the inputs that get no gradient."""

import math

import pytest
import torch
from torch import Tensor

from learner.algos import losses
from learner.algos.distributions import log_prob
from learner.algos.vtrace import vtrace

T, B, A = 4, 3, 5


@pytest.fixture
def generator() -> torch.Generator:
    """Returns a seeded generator, so that every test sees the same numbers each time."""
    return torch.Generator().manual_seed(0)


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    """Returns a float64 leaf that requires a gradient."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


def random_actions(generator: torch.Generator) -> Tensor:
    """Returns int64 [T, B]."""
    return torch.randint(A, (T, B), generator=generator)


def checkered_mask() -> Tensor:
    """Returns a float64 [T, B] mask with every second step valid."""
    return (torch.arange(T * B).reshape(T, B) % 2).double()


def gradient(leaf: Tensor) -> Tensor:
    """Returns the gradient of `leaf`."""
    assert leaf.grad is not None
    return leaf.grad


def test_policy_gradient_is_softmax_minus_one_hot_times_advantage(
    generator: torch.Generator,
) -> None:
    """The gradient has the closed form at valid steps, and is zero elsewhere."""
    logits, advantages = normal(generator, T, B, A), normal(generator, T, B)
    actions, mask = random_actions(generator), checkered_mask()
    losses.policy_gradient_loss(logits, actions, advantages, mask).backward()
    one_hot = torch.nn.functional.one_hot(actions, A)
    weights = (advantages * mask).unsqueeze(-1)
    expected = (torch.softmax(logits, -1) - one_hot) * weights
    torch.testing.assert_close(gradient(logits), expected.detach())
    assert advantages.grad is None


def test_value_gradient_is_value_minus_target(generator: torch.Generator) -> None:
    """Half of a squared error has the error as its gradient, and targets have none."""
    values, targets = normal(generator, T, B), normal(generator, T, B)
    mask = checkered_mask()
    losses.value_loss(values, targets, mask).backward()
    torch.testing.assert_close(gradient(values), ((values - targets) * mask).detach())
    assert targets.grad is None


def test_entropy_gradient_equals_closed_form(generator: torch.Generator) -> None:
    """The gradient is d(-H)/dlogit_j = p_j (log p_j + H)."""
    logits, mask = normal(generator, T, B, A), checkered_mask()
    losses.entropy_loss(logits, mask).backward()
    log_probs = torch.log_softmax(logits, -1).detach()
    probs = log_probs.exp()
    entropies = -(probs * log_probs).sum(-1, keepdim=True)
    expected = probs * (log_probs + entropies) * mask.unsqueeze(-1)
    torch.testing.assert_close(gradient(logits), expected)


def test_losses_equal_sums_worked_by_hand() -> None:
    """Two steps, the second masked; two equally likely actions.

    policy gradient: -log(1/2) 3 = 3 log 2; value: (5 - 2)^2 / 2; entropy: -log 2.
    """
    logits, mask = torch.zeros(2, 1, 2), torch.tensor([[1.0], [0.0]])
    actions, advantages = torch.tensor([[1], [0]]), torch.tensor([[3.0], [7.0]])
    values, targets = torch.tensor([[2.0], [0.0]]), torch.tensor([[5.0], [9.0]])
    policy_gradient = losses.policy_gradient_loss(logits, actions, advantages, mask)
    assert policy_gradient.item() == pytest.approx(3 * math.log(2))
    assert losses.value_loss(values, targets, mask).item() == pytest.approx(4.5)
    assert losses.entropy_loss(logits, mask).item() == pytest.approx(-math.log(2))


def test_boolean_mask_equals_float_mask(generator: torch.Generator) -> None:
    """A mask may be bool or float."""
    logits, values = normal(generator, T, B, A), normal(generator, T, B)
    actions, mask = random_actions(generator), checkered_mask()
    for loss in (
        lambda m: losses.policy_gradient_loss(logits, actions, values, m),
        lambda m: losses.value_loss(values, torch.zeros(T, B), m),
        lambda m: losses.entropy_loss(logits, m),
        lambda m: losses.reduce(values.sum(), m.sum(), "mean"),
    ):
        assert torch.equal(loss(mask.bool()), loss(mask))


def test_vtrace_losses_send_no_gradient_to_masked_rows_or_the_bootstrap(
    generator: torch.Generator,
) -> None:
    """The whole loss, as the agent builds it: rows without a transition learn nothing,
    and neither does the row that only bootstraps."""
    logits, values = normal(generator, T, B, A), normal(generator, T + 1, B)
    actions, mask = random_actions(generator), checkered_mask()
    target_log_probs = log_prob(logits, actions)
    returns = vtrace(
        behaviour_log_probs=target_log_probs.detach() - 0.1,
        target_log_probs=target_log_probs,
        rewards=torch.ones(T, B, dtype=torch.float64),
        discounts=torch.full((T, B), 0.9, dtype=torch.float64),
        mask=mask,
        values=values,
        rho_max=1.0,
        c_max=1.0,
        pg_rho_max=1.0,
        trace_lambda=1.0,
    )
    loss = (
        losses.policy_gradient_loss(logits, actions, returns.advantages, mask)
        + losses.value_loss(values[:-1], returns.value_targets, mask)
        + losses.entropy_loss(logits, mask)
    )
    loss.backward()
    valid = mask.bool()
    assert (gradient(logits)[~valid] == 0).all()
    assert (gradient(logits)[valid] != 0).any(-1).all()
    assert (gradient(values)[:-1] != 0).equal(valid)
    assert (gradient(values)[-1] == 0).all()
    expected = (values[:-1] - returns.value_targets) * mask
    torch.testing.assert_close(gradient(values)[:-1], expected.detach())


def test_reduce_divides_by_valid_steps_only_for_the_mean() -> None:
    """A mean counts the steps that the sum ran over, not the batch."""
    mask = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    assert losses.reduce(torch.tensor(6.0), mask.sum(), "sum").item() == 6.0
    assert losses.reduce(torch.tensor(6.0), mask.sum(), "mean").item() == 2.0


def test_mean_of_no_valid_step_is_zero() -> None:
    """A batch without a valid step must not put NaN into the weights."""
    assert losses.reduce(torch.tensor(0.0), torch.tensor(0.0), "mean").item() == 0.0


def test_float32_agrees_with_float64(generator: torch.Generator) -> None:
    """Training precision changes no loss noticeably."""
    logits, values = normal(generator, T, B, A).detach(), normal(generator, T, B).detach()
    actions, mask = random_actions(generator), checkered_mask()
    for loss in (
        lambda x, v: losses.policy_gradient_loss(x, actions, v, mask.to(v.dtype)),
        lambda x, v: losses.value_loss(v, v + 1, mask.to(v.dtype)),
        lambda x, v: losses.entropy_loss(x, mask.to(x.dtype)),
    ):
        single = loss(logits.float(), values.float())
        assert single.dtype == torch.float32
        torch.testing.assert_close(single.double(), loss(logits, values), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("mean_entropy", "rises"), [(0.2, True), (0.8, False)])
def test_entropy_cost_rises_only_when_entropy_is_below_target(
    mean_entropy: float, rises: bool
) -> None:
    """Too little entropy costs more, and too much costs less."""
    speed, target = 10.0, 0.5
    theta = torch.zeros((), requires_grad=True)
    before = losses.adaptive_entropy_cost(theta, speed).item()
    losses.entropy_cost_loss(theta, torch.tensor(mean_entropy), target, speed).backward()
    torch.optim.SGD([theta], lr=0.01).step()
    after = losses.adaptive_entropy_cost(theta, speed).item()
    assert (after > before) == rises
    assert after != before


def test_entropy_cost_gradient_equals_closed_form_and_spares_the_policy() -> None:
    """The gradient of theta is k exp(k theta) (H - H_target), and the entropy gets none."""
    theta = torch.tensor(-0.3, dtype=torch.float64, requires_grad=True)
    mean_entropy = torch.tensor(1.1, dtype=torch.float64, requires_grad=True)
    losses.entropy_cost_loss(theta, mean_entropy, 0.5, 2.0).backward()
    assert gradient(theta).item() == pytest.approx(2.0 * math.exp(-0.6) * 0.6)
    assert mean_entropy.grad is None


def test_theta_of_entropy_cost_inverts_the_adaptive_cost() -> None:
    """The adaptive cost starts at the cost that the config names."""
    theta = losses.theta_of_entropy_cost(0.01, 10.0)
    assert losses.adaptive_entropy_cost(torch.tensor(theta), 10.0).item() == pytest.approx(0.01)
