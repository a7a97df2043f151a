"""n-step returns that end where their episode or their unroll ends.

Pure maths on tensors of any device, called by the trainer and inference threads.
`learner.records.transitions` makes the masks and discounts.
"""

import torch
from torch import Tensor


@torch.no_grad()
def n_step_returns(
    *, rewards: Tensor, discounts: Tensor, mask: Tensor, bootstrap_values: Tensor, n_step: int
) -> Tensor:
    """Returns G_t for t = 0..T-1, float [T, B], without gradient (Kapturowski et al. 2019).

        G_t = sum_{i=1..k} gamma^{i-1} r_{t+i} + gamma^k (1 - terminated_{t+k}) q_{t+k}
        k = min(n, T - t, steps from t to the next last row of an episode)

    Computed as n backups from the next row, for all rows at once:

        G^0_t = q_t      G^j_t = r_{t+1} + gamma_{t+1} G^{j-1}_{t+1} if m_t else q_t

    m_t = 0 marks the last row of an episode (no transition leaves it). There G is the
    row's own q, which is the bootstrap that a truncated episode needs; a terminated
    episode has gamma 0 in the transition before. A lost life has gamma 0 too, but the
    transitions after it go on. Row T has no next row and keeps its q too. With n = 3,
    but k = 2 for row 4, as the unroll ends:

        row    0    1    2 (truncated)   3 (first)   4    5    6 = T
        k      2    1    masked          3           2    1
        ends   q_2  q_2                  q_6         q_6  q_6

    Args:
      rewards: float [T, B], r_{t+1}: received for action t.
      discounts: float [T, B], gamma_{t+1}: the discount factor, 0 where row t+1 is
        terminated.
      mask: float or bool [T, B], m_t: 1 where the transition t -> t+1 exists.
      bootstrap_values: float [T+1, B], q_0..q_T.
      n_step: 1 or more; it may exceed T.
    """
    exists = mask.bool()
    returns = bootstrap_values
    for _ in range(min(n_step, len(rewards))):
        # Selected, not multiplied: even a NaN beside a reset must have no effect.
        backups = torch.where(exists, rewards + discounts * returns[1:], bootstrap_values[:-1])
        returns = torch.cat([backups, bootstrap_values[-1:]])
    return returns[:-1]
