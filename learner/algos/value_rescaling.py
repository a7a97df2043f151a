"""The value rescaling h, which takes the place of reward clipping, and its inverse.

Pure maths on tensors of any device, called by the inference and trainer threads.
The agent decides what is rescaled.
"""

import torch
from torch import Tensor


def rescale(x: Tensor, epsilon: float) -> Tensor:
    """Returns h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x (Pohlen et al. 2018).

    It squashes large values and keeps small ones in proportion, h(x) ~ x / 2.
    Written without the difference, which would lose the digits of a small x:

        h(x) = x (1 / (sqrt(|x| + 1) + 1) + epsilon)

    Args:
      x: float [...], of any size.
      epsilon: 0 or more; above 0 it keeps the inverse Lipschitz continuous.
    """
    return x * (1 / (torch.sqrt(x.abs() + 1) + 1) + epsilon)


def inverse_rescale(y: Tensor, epsilon: float) -> Tensor:
    """Returns x with `rescale(x, epsilon)` = y, exact to a few roundings in any dtype.

    With d = sqrt(|x| + 1) - 1, so that |x| = d (d + 2), the equation h(x) = y reads
    epsilon d^2 + (1 + 2 epsilon) d = |y|, whose root at or above 0 is

        d = 2 |y| / (1 + 2 epsilon + sqrt((1 + 2 epsilon)^2 + 4 epsilon |y|))

    The closed form of Pohlen et al. 2018, proposition A.2, computes the same number from
    differences: with epsilon = 1e-3, in float32, it has only two digits right at y = 0.01.

    Args:
      y: float [...].
      epsilon: that of `rescale`; 0 is allowed.
    """
    linear = 1 + 2 * epsilon
    root = torch.sqrt(linear**2 + 4 * epsilon * y.abs())
    signed = 2 * y / (linear + root)  # sign(y) d
    return signed * (signed.abs() + 2)
