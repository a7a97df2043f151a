"""Every kind of environment keeps the contract of tests/env_contract.py; each is one line here."""

from collections.abc import Callable

import pytest

import tests.actors.odd_envs  # noqa: F401 - registers odd/*
from seed.env_config import AtariConfig, EnvConfig
from tests.env_contract import CHECKS

# Games are cut after 60 steps, so that a short rollout holds ends of episodes.
_ATARI = AtariConfig(max_frames_per_episode=240)
_BREAKOUT = AtariConfig(
    max_frames_per_episode=600, life_loss_terminal=True, full_action_space=False, noop_max=10
)

ENVIRONMENTS = {
    "catch": EnvConfig(env_id="seed/Catch-v0"),
    "recall": EnvConfig(env_id="seed/Recall-v0"),
    "t-maze": EnvConfig(env_id="seed/TMaze-v0", env_kwargs='{"length": 2, "time_limit": 12}'),
    "null": EnvConfig(env_id="seed/Null-v0", env_kwargs='{"shape": [3], "episode_length": 5}'),
    "cartpole": EnvConfig(env_id="CartPole-v1"),
    "frozen-lake": EnvConfig(env_id="FrozenLake-v1"),
    "pong": EnvConfig(env_id="ALE/Pong-v5", atari=_ATARI),
    "breakout-life-loss": EnvConfig(env_id="ALE/Breakout-v5", atari=_BREAKOUT),
    "dict": EnvConfig(env_id="odd/NestedDict-v0"),
    "tuple": EnvConfig(env_id="odd/TupleOfKinds-v0"),
    "raises": EnvConfig(env_id="odd/Fragile-v0", env_kwargs='{"fails_at": 120}'),
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_environment_keeps_the_contract(name: str, check: Callable[[EnvConfig], None]) -> None:
    """Each check of the contract holds for each environment."""
    check(ENVIRONMENTS[name])
