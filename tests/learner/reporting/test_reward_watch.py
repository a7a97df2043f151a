"""Warnings about rewards that are clipped, or too large to be learned from."""

import logging
import math

import pytest

from learner.config.agent_config import AgentConfig, R2D2Config, RewardHandling, VTraceConfig
from learner.config.presets import PRESETS
from learner.reporting.reward_watch import RewardWatch, reward_warning

CLIPPED = VTraceConfig()
UNCLIPPED = VTraceConfig(reward_clip_min=-math.inf, reward_clip_max=math.inf)


def warnings_of(
    caplog: pytest.LogCaptureFixture,
    config: AgentConfig,
    *windows: tuple[float, float],
    is_atari: bool = False,
) -> list[str]:
    """Returns what is logged about windows with these smallest and largest rewards."""
    watch = RewardWatch(config, is_atari=is_atari)
    caplog.clear()
    for smallest, largest in windows:
        watch.look({"reward/min": smallest, "reward/max": largest})
        watch.look({"env_steps": 1.0})
    assert all(record.levelno == logging.WARNING for record in caplog.records)
    return caplog.messages


@pytest.mark.parametrize(
    ("handling", "smallest", "largest", "warning"),
    [
        # LunarLander's landing and crash.
        (
            RewardHandling("", 1.0, -1.0, 1.0),
            -100.0,
            100.0,
            "rewards from -100 to 100 are clipped to [-1, 1], so training cannot tell larger ones "
            "apart: give --reward-clip-min=-inf --reward-clip-max=inf, with --reward-scale 0.01 if "
            "training then becomes unstable",
        ),
        # CliffWalking under the old cartpole-vtrace.
        (
            RewardHandling("", 0.05, -1.0, 1.0),
            -100.0,
            -1.0,
            "rewards from -100 to -1 are clipped to [-20, 20]",
        ),
        (
            RewardHandling("", 1.0, -1.0, math.inf),
            -2.0,
            0.0,
            "rewards from -2 to 0 are clipped to [-1, inf]",
        ),
        (
            RewardHandling("", 0.05, -math.inf, math.inf),
            -1000.0,
            5.0,
            "rewards from -1000 to 5 are trained on with sizes of up to 50: give --reward-scale "
            "0.001 for sizes of about 1",
        ),
        (RewardHandling("", 1.0, -1.0, 1.0), -1.0, 1.0, None),
        (RewardHandling("", 1.0, -1.0, 1.0), 0.0, 0.0, None),
        (RewardHandling("", 0.05, -1.0, 1.0), -20.0, 1.0, None),
        (RewardHandling("", 0.05, -math.inf, math.inf), -100.0, 100.0, None),
        (RewardHandling("", 1.0, -math.inf, math.inf), 0.0, 0.0, None),
    ],
)
def test_warning_says_what_is_lost_and_the_way_out(
    handling: RewardHandling, smallest: float, largest: float, warning: str | None
) -> None:
    """Bounds are in raw units; a reward that the bounds just hold is no reason to warn."""
    got = reward_warning(handling, smallest, largest)
    assert (got or "").startswith(warning or "")
    assert (got is None) is (warning is None)


def test_a_run_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    """The numbers are those of all windows until then."""
    told = warnings_of(caplog, CLIPPED, (-1, 0.5), (0, 1), (-3, 0), (-9, 9))
    assert len(told) == 1
    assert told[0].startswith("rewards from -3 to 1 are clipped to [-1, 1]")
    assert len(warnings_of(caplog, UNCLIPPED, (0, 20), (0, 3000))) == 1


def test_nothing_is_said_where_rewards_of_any_size_are_meant(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Atari's scores are clipped as published, and R2D2 rescales its values."""
    assert warnings_of(caplog, CLIPPED, (-500, 500), is_atari=True) == []
    assert warnings_of(caplog, R2D2Config(), (-500, 500)) == []


@pytest.mark.parametrize("name", PRESETS)
def test_only_atari_presets_clip(caplog: pytest.LogCaptureFixture, name: str) -> None:
    """Somebody who takes one for LunarLander, whose rewards reach 100, loses none of them."""
    config = PRESETS[name].config
    expected = 1 if name in ("atari-vtrace", "atari-vtrace-cpu") else 0
    told = warnings_of(caplog, config.agent, (-100, 100))
    assert len([line for line in told if "clipped" in line]) == expected
    assert warnings_of(caplog, config.agent, (-100, 100), is_atari=True) == []
