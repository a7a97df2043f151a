"""Actor-critic losses as sums over valid steps, and their reduction.

Pure maths, called by the trainer thread. Weighting the losses against each other is
left to the agent. A step is valid where its mask m_t is 1 (see `vtrace`).
"""

import math
from typing import Literal

import torch
from torch import Tensor

from learner.algos import distributions


def policy_gradient_loss(
    logits: Tensor, actions: Tensor, advantages: Tensor, mask: Tensor
) -> Tensor:
    """Returns -sum_t m_t adv_t log pi(a_t|t), a scalar (Espeholt et al. 2018, 4.2).

    Args:
      logits: float [T, B, A] of the policy being trained.
      actions: int64 [T, B], the actions taken.
      advantages: float [T, B]; no gradient flows into them.
      mask: float or bool [T, B].
    """
    return -_masked_sum(distributions.log_prob(logits, actions) * advantages.detach(), mask)


def value_loss(values: Tensor, value_targets: Tensor, mask: Tensor) -> Tensor:
    """Returns sum_t m_t (v_t - V_t)^2 / 2, a scalar.

    Args:
      values: float [T, B], V_t.
      value_targets: float [T, B], v_t; no gradient flows into them.
      mask: float or bool [T, B].
    """
    return 0.5 * _masked_sum((value_targets.detach() - values).square(), mask)


def entropy_loss(logits: Tensor, mask: Tensor) -> Tensor:
    """Returns -sum_t m_t H(pi(.|t)) in nats, a scalar: minimising it explores.

    Args:
      logits: float [T, B, A].
      mask: float or bool [T, B].
    """
    return -_masked_sum(distributions.entropy(logits), mask)


def reduce(loss_sum: Tensor, num_valid: Tensor, reduction: Literal["sum", "mean"]) -> Tensor:
    """Returns the sum over valid steps as it is, or divided by their number.

    The mean over no valid step is 0: there is nothing to learn from, and no NaN.
    """
    if reduction == "sum":
        return loss_sum
    return loss_sum / num_valid.clamp(min=1)


def adaptive_entropy_cost(theta: Tensor, speed: float) -> Tensor:
    """Returns the entropy cost exp(speed * theta), always above 0."""
    return torch.exp(speed * theta)


def theta_of_entropy_cost(entropy_cost: float, speed: float) -> float:
    """Returns the theta at which `adaptive_entropy_cost` is `entropy_cost` (above 0)."""
    return math.log(entropy_cost) / speed


def entropy_cost_loss(
    theta: Tensor, mean_entropy: Tensor, entropy_target: float, speed: float
) -> Tensor:
    """Returns exp(speed * theta) (H_mean - H_target), the loss of theta alone.

    Its gradient, speed * cost * (H_mean - H_target), is negative while the entropy is
    below its target, so that descent raises the cost (Espeholt et al. 2020, SEED RL).

    Args:
      theta: float scalar, the trained parameter.
      mean_entropy: float scalar in nats; no gradient flows into it.
      entropy_target: in nats.
      speed: k of the paper's code; scales how fast the cost moves.
    """
    return adaptive_entropy_cost(theta, speed) * (mean_entropy.detach() - entropy_target)


def _masked_sum(per_step: Tensor, mask: Tensor) -> Tensor:
    return (per_step * mask).sum()
