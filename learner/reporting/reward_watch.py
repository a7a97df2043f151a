"""Says what training does to rewards, and warns when it does not suit those of the environment.

The reporting thread calls it with each report, whose `reward/min` and `reward/max` are the raw
rewards of the window. Torch-free.
"""

import logging
import math
from collections.abc import Mapping

from learner.config.agent_config import AgentConfig, RewardHandling

_LOG = logging.getLogger(__name__)

# Larger rewards, after scaling and without clipping, make returns too large to be learned from.
_LARGE = 10.0


class RewardWatch:
    """Warns once if rewards are clipped, or so large that training suffers."""

    def __init__(self, config: AgentConfig, *, is_atari: bool) -> None:
        """With `is_atari` clipping is as published, and nothing to warn of."""
        self._handling = config.reward_handling
        self._is_done = is_atari or self._handling.bounds_any
        self._smallest, self._largest = math.inf, -math.inf

    def look(self, report: Mapping[str, float]) -> None:
        """Takes the extremes of a report, if it has any, and warns the first time it must."""
        if self._is_done or "reward/min" not in report:
            return
        self._smallest = min(self._smallest, report["reward/min"])
        self._largest = max(self._largest, report["reward/max"])
        warning = reward_warning(self._handling, self._smallest, self._largest)
        if warning is not None:
            self._is_done = True
            _LOG.warning("%s", warning)


def reward_warning(handling: RewardHandling, smallest: float, largest: float) -> str | None:
    """Returns a warning about raw rewards from `smallest` to `largest`; None if they suit.

    Args:
      handling: what the agent does to rewards.
      smallest: the smallest raw reward that was seen.
      largest: the largest one.
    """
    low, high = handling.clip_min / handling.scale, handling.clip_max / handling.scale
    seen = f"rewards from {smallest:g} to {largest:g} are"
    scale = f"--reward-scale {_suggested_scale(smallest, largest):g}"
    if smallest < low or largest > high:
        return (
            f"{seen} clipped to [{low:g}, {high:g}], so training cannot tell larger ones apart: "
            f"give --reward-clip-min=-inf --reward-clip-max=inf, with {scale} if training then "
            "becomes unstable"
        )
    size = handling.scale * max(abs(smallest), abs(largest))
    if size > _LARGE:
        return f"{seen} trained on with sizes of up to {size:g}: give {scale} for sizes of about 1"
    return None


def _suggested_scale(smallest: float, largest: float) -> float:
    """Returns a power of ten that takes the rewards to sizes of about 1."""
    size = max(abs(smallest), abs(largest))
    return 10.0 ** -round(math.log10(size)) if size else 1.0
