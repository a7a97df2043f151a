"""TD errors of rescaled double Q-learning over sequences, their loss and priorities.

Pure maths, called by the trainer thread and, for first priorities, by inference.
A step is valid where its mask m_t is 1 (see `n_step`). The agent runs the networks and
averages over a batch.
"""

import torch
from torch import Tensor

from learner.algos.n_step import n_step_returns
from learner.algos.value_rescaling import inverse_rescale, rescale

# Lowest priority of a sequence with valid steps: one that is predicted exactly now must
# still be drawn again some day (Schaul et al. 2016, section 3.3).
MIN_PRIORITY = 1e-6


def td_errors(
    *,
    online_q: Tensor,
    target_q: Tensor,
    actions: Tensor,
    rewards: Tensor,
    discounts: Tensor,
    mask: Tensor,
    n_step: int,
    rescale_epsilon: float,
) -> Tensor:
    """Returns delta_t = m_t (h(G_t) - Q_online(t, a_t)), float [T, B].

    Both Q are in rescaled units, G in those of the rewards (Pohlen et al. 2018, section
    3.2; Kapturowski et al. 2019, section 2.3). Gradient flows into Q_online(t, a_t)
    alone, and only where the step is valid.

    Args:
      online_q: float [T+1, B, A], Q of the network being trained.
      target_q: float [T+1, B, A], Q of the target network.
      actions: int64 [T, B], the actions taken.
      rewards, discounts, mask, n_step: as for `n_step_returns`.
      rescale_epsilon: epsilon of h.
    """
    returns = n_step_returns(
        rewards=rewards,
        discounts=discounts,
        mask=mask,
        bootstrap_values=inverse_rescale(double_q_values(online_q, target_q), rescale_epsilon),
        n_step=n_step,
    )
    chosen_q = q_of_actions(online_q[:-1], actions)
    return mask * (rescale(returns, rescale_epsilon) - chosen_q)


@torch.no_grad()
def double_q_values(online_q: Tensor, target_q: Tensor) -> Tensor:
    """Returns Q_target(argmax_a Q_online(a)), float [...] (van Hasselt et al. 2016).

    The target network values the action that the online network would choose, so that
    neither profits from its own errors. Both float [..., A].
    """
    return q_of_actions(target_q, online_q.argmax(-1))


def q_of_actions(q_values: Tensor, actions: Tensor) -> Tensor:
    """Returns Q(a), float [...], for Q values [..., A] and int64 actions [...]."""
    return q_values.gather(-1, actions.unsqueeze(-1)).squeeze(-1)


def sequence_losses(errors: Tensor) -> Tensor:
    """Returns loss_b = 1/2 sum_t delta_t^2, float [B], of TD errors [T, B]."""
    return 0.5 * errors.square().sum(0)


def sequence_means(values: Tensor, mask: Tensor) -> Tensor:
    """Returns each sequence's mean over its valid steps, float [B]; 0 if it has none.

    Args:
      values: float [T, B].
      mask: float or bool [T, B].
    """
    return (values * mask).sum(0) / mask.sum(0).clamp(min=1)


@torch.no_grad()
def sequence_priorities(errors: Tensor, mask: Tensor, mix: float) -> Tensor:
    """Returns eta max_t |delta_t| + (1 - eta) mean_t |delta_t|, float [B], without gradient.

    Over valid steps (Kapturowski et al. 2019, section 2.3), and at least MIN_PRIORITY.
    A sequence without valid steps gets 0: its mask does not change, so it never teaches
    anything. Replay raises the 0 to its own smallest priority.

    Args:
      errors: float [T, B], already masked.
      mask: float or bool [T, B].
      mix: eta, in [0, 1].
    """
    sizes = errors.abs()
    priorities = mix * sizes.amax(0) + (1 - mix) * sequence_means(sizes, mask)
    return torch.where(mask.bool().any(0), priorities.clamp(min=MIN_PRIORITY), 0)
