"""The categorical action distribution, as functions of its logits.

Pure maths on tensors of any device, called by the inference and trainer threads.
Masking actions is left to the network: it sets their logits to the dtype's minimum.
"""

import torch
from torch import Tensor


def log_prob(logits: Tensor, actions: Tensor) -> Tensor:
    """Returns log pi(a), float [...], for logits [..., A] and int64 actions [...]."""
    log_probs = torch.log_softmax(logits, dim=-1)
    return log_probs.gather(-1, actions.unsqueeze(-1)).squeeze(-1)


def entropy(logits: Tensor) -> Tensor:
    """Returns H = -sum_a pi(a) log pi(a) in nats, float [...], for logits [..., A].

    Value and gradient stay finite for masked actions, whether their logits are the
    dtype's minimum or -inf.
    """
    log_probs = torch.log_softmax(logits, dim=-1)
    # A finite floor turns 0 * -inf, which is NaN, into 0.
    finite = log_probs.clamp(min=torch.finfo(logits.dtype).min)
    return -(log_probs.exp() * finite).sum(-1)


def sample(logits: Tensor, generator: torch.Generator) -> Tensor:
    """Returns one action a row, int64 [...], drawn from softmax(logits [..., A]).

    Inverts the cumulative distribution: the action is the number of cumulative
    probabilities at or below a uniform draw. The draw is float64, so that rare actions
    keep their probability, which float32 draws (multiples of 2^-24) would distort. An
    action of probability 0 is never drawn.

    Args:
      logits: float [..., A].
      generator: on the logits' device; advances by one draw a row.
    """
    cumulative = torch.softmax(logits, dim=-1, dtype=torch.float64).cumsum(-1)
    total = cumulative[..., -1:]  # 1 up to rounding; the draw stays below it
    uniform = torch.rand(
        total.shape, generator=generator, device=logits.device, dtype=torch.float64
    )
    return (cumulative <= uniform * total).sum(-1)


def greedy(logits: Tensor) -> Tensor:
    """Returns the likeliest action a row, int64 [...], for logits [..., A]."""
    return logits.argmax(-1)
