"""How much of the targets' variance the predictions explain, from sums that add up.

Pure maths, called by the trainer thread. A batch is computed in parts, on several threads and
ranks. Variances do not add up over parts, but the sums that they are computed from do.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

# The sums travel among an update's metrics under these names.
_COUNT, _ERROR, _ERROR_SQUARE, _TARGET, _TARGET_SQUARE = MOMENTS = tuple(
    f"moments/{name}" for name in ("count", "error", "error_square", "target", "target_square")
)

# float32 sums cannot tell a smaller share of the mean square from a variance of 0.
_SMALLEST_SHARE = 1e-5


@torch.no_grad()
def moments(predictions: Tensor, targets: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Returns scalars by the names in `MOMENTS`: sums over the steps whose mask is 1.

    Args:
      predictions: float [T, B].
      targets: float [T, B].
      mask: float [T, B], 0 or 1.
    """
    valid_targets = targets * mask
    errors = valid_targets - predictions * mask
    terms = (mask, errors, errors.square(), valid_targets, valid_targets.square())
    return dict(zip(MOMENTS, torch.stack(terms).sum((1, 2)).unbind(), strict=True))


def explained_variance(sums: Mapping[str, float]) -> float | None:
    """Returns 1 - Var[target - prediction] / Var[target].

    1 is perfect. A prediction that is the same everywhere scores 0, and a worse one less than 0.
    None if the targets hardly differ, so that there is nothing to explain.

    Args:
      sums: those of `moments`, added up over the parts of a batch.
    """
    count = sums[_COUNT]
    if count < 2:
        return None
    mean_square = sums[_TARGET_SQUARE] / count
    variance = mean_square - (sums[_TARGET] / count) ** 2
    if variance <= _SMALLEST_SHARE * mean_square:
        return None
    unexplained = sums[_ERROR_SQUARE] / count - (sums[_ERROR] / count) ** 2
    return 1 - max(unexplained, 0.0) / variance


def with_explained_variance(metrics: Mapping[str, float]) -> dict[str, float]:
    """Returns `metrics` with "value/explained_variance", if there is one, in place of the sums."""
    others = {name: value for name, value in metrics.items() if name not in MOMENTS}
    explained = explained_variance(metrics)
    return others if explained is None else others | {"value/explained_variance": explained}
