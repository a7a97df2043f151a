"""V-trace: value targets and policy-gradient advantages from off-policy unrolls.

Pure maths on tensors of any device, called by the trainer thread.
`learner.records.transitions` makes the masks and discounts; the agent clips the rewards.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class VTraceReturns(NamedTuple):
    """The results of `vtrace`, without gradient."""

    value_targets: Tensor
    """float [T, B]: v_t, the regression targets of the values of rows 0..T-1. Equal
    to the value itself where the transition does not exist."""
    advantages: Tensor
    """float [T, B]: weights of the policy gradient, importance weight included; 0
    where the transition does not exist."""
    log_rhos: Tensor
    """float [T, B]: log of target over behaviour probability, neither clipped nor
    masked."""


@torch.no_grad()
def vtrace(
    *,
    behaviour_log_probs: Tensor,
    target_log_probs: Tensor,
    rewards: Tensor,
    discounts: Tensor,
    mask: Tensor,
    values: Tensor,
    rho_max: float,
    c_max: float,
    pg_rho_max: float,
    trace_lambda: float,
) -> VTraceReturns:
    """Computes V-trace (Espeholt et al. 2018, eq. 1 and section 4.2) for t = 0..T-1.

        rho_t = target_t / behaviour_t
        delta_t = m_t min(rho_max, rho_t) (R_t + gamma_{t+1} V_{t+1} - V_t)
        A_t = delta_t + m_t gamma_{t+1} lambda min(c_max, rho_t) A_{t+1},    A_T = 0
        v_t = V_t + A_t,    v_T = V_T
        adv_t = m_t min(pg_rho_max, rho_t) (R_t + gamma_{t+1} v_{t+1} - V_t)

    Departs from the paper in the mask m_t, which is 0 on the last row of an episode
    (no transition leaves it). There v_t = V_t, which is the bootstrap that a truncated
    episode needs; a terminated episode has gamma 0 in the transition before.

    Args:
      behaviour_log_probs: float [T, B], log probability of action t under the policy
        that chose it.
      target_log_probs: float [T, B], the same under the policy being trained.
      rewards: float [T, B], R_t: received for action t, already scaled and clipped.
      discounts: float [T, B], gamma_{t+1}: the discount factor, 0 where row t+1 is
        terminated.
      mask: float or bool [T, B], m_t: 1 where the transition t -> t+1 exists.
      values: float [T+1, B], V_0..V_T.
      rho_max: clip of the importance weight in the temporal difference.
      c_max: clip of the trace weight.
      pg_rho_max: clip of the importance weight of the policy gradient.
      trace_lambda: multiplies the trace weight, in [0, 1].
    """
    log_rhos = target_log_probs - behaviour_log_probs
    rhos = log_rhos.exp()

    td_errors = rewards + discounts * values[1:] - values[:-1]
    deltas = mask * rhos.clamp(max=rho_max) * td_errors
    decays = mask * discounts * trace_lambda * rhos.clamp(max=c_max)
    value_targets = values[:-1] + _discounted_sums(deltas, decays)

    next_targets = torch.cat([value_targets[1:], values[-1:]])
    advantages = rewards + discounts * next_targets - values[:-1]
    advantages = mask * rhos.clamp(max=pg_rho_max) * advantages
    return VTraceReturns(value_targets, advantages, log_rhos)


def _discounted_sums(deltas: Tensor, decays: Tensor) -> Tensor:
    """Returns A [T, B] with A_t = delta_t + decay_t A_{t+1} and A_T = 0."""
    sums = torch.empty_like(deltas)
    following = torch.zeros_like(deltas[0])
    steps = zip(sums.unbind(), deltas.unbind(), decays.unbind(), strict=True)
    for row, delta, decay in reversed(list(steps)):
        following = torch.addcmul(delta, decay, following, out=row)
    return sums
