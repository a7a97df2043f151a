"""Epsilon-greedy actions, and the epsilon ladder that gives each environment its epsilon.

Pure maths on tensors of any device, called by the inference thread. No function makes
the host wait for the device.
"""

import torch
from torch import Tensor

# Slot numbers stay below 2 to this power.
_NUM_BITS = 32


def ladder(slots: Tensor, base: float, exponent: float) -> Tensor:
    """Returns each slot's epsilon_i = base^(1 + exponent u_i), float64 [...].

    u_i is the slot's `van_der_corput`; Horgan et al. 2018 (section 4.1) take i / (N - 1)
    instead. So any number N of environments is spread evenly over the ladder, and an
    environment's epsilon does not change as others come or go. Slot 0 explores the most.

    Args:
      slots: int64 [...], in [0, 2^32).
      base: epsilon of slot 0, in [0, 1].
      exponent: 0 for the same epsilon everywhere.
    """
    return torch.pow(base, 1 + exponent * van_der_corput(slots))


def van_der_corput(indices: Tensor) -> Tensor:
    """Returns 0, 1/2, 1/4, 3/4, 1/8, ...: float64 [...], even on [0, 1) for any prefix.

    The bits of an index in [0, 2^32), int64, are mirrored at the binary point, as in
    `learner.acting.unrolls.van_der_corput`. They are integers, so this is exact on any device.
    """
    positions = torch.arange(_NUM_BITS, device=indices.device)
    bits = (indices.unsqueeze(-1) >> positions) & 1
    mirrored = (bits << (_NUM_BITS - 1 - positions)).sum(-1)
    return mirrored.to(torch.float64) / 2**_NUM_BITS


def select_actions(q_values: Tensor, epsilons: Tensor, generator: torch.Generator) -> Tensor:
    """Returns one action a row, int64 [B]: with probability epsilon any, else the best.

    "Any" includes the best. Both draws are made for every row, so that one row's
    epsilon changes no other row's action.

    Args:
      q_values: float [B, A].
      epsilons: float64 [B].
      generator: on the values' device; advances by two draws a row.
    """
    batch_size, num_actions = q_values.shape
    device = q_values.device
    # In float64: float32 draws are too coarse for the smallest epsilons.
    draws = torch.rand(batch_size, generator=generator, device=device, dtype=torch.float64)
    anything = torch.randint(num_actions, (batch_size,), generator=generator, device=device)
    return torch.where(draws < epsilons, anything, q_values.argmax(-1))
