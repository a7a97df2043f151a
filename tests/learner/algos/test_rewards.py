"""Scaling and clipping of rewards."""

import math

import pytest
import torch

from learner.algos.rewards import transform_rewards


@pytest.mark.parametrize(
    ("scale", "low", "high", "expected"),
    [
        (1.0, -1.0, 1.0, [-1.0, -0.5, 0.0, 1.0]),
        (0.5, -1.0, 1.0, [-1.0, -0.25, 0.0, 1.0]),  # Scaled first, then clipped.
        (1.0, -0.25, 2.0, [-0.25, -0.25, 0.0, 2.0]),
        (2.0, -math.inf, math.inf, [-8.0, -1.0, 0.0, 6.0]),
    ],
)
def test_rewards_are_scaled_then_clipped(
    scale: float, low: float, high: float, expected: list[float]
) -> None:
    """Both bounds act, also where they differ, and infinite bounds clip nothing."""
    rewards = torch.tensor([-4.0, -0.5, 0.0, 3.0])
    assert transform_rewards(rewards, scale, low, high).tolist() == expected
    assert rewards.tolist() == [-4.0, -0.5, 0.0, 3.0]
