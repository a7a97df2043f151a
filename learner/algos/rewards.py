"""Scaling and clipping of raw rewards before training.

Pure maths, called by the trainer thread and, for networks that see their last reward,
by inference. Episode statistics hold the raw rewards.
"""

from torch import Tensor


def transform_rewards(rewards: Tensor, scale: float, clip_min: float, clip_max: float) -> Tensor:
    """Returns clip(rewards * scale, clip_min, clip_max), of the rewards' shape.

    Infinite bounds clip nothing; the two need not mirror each other.
    """
    return (rewards * scale).clamp(clip_min, clip_max)
