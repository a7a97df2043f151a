"""actors/envs.py makes environments from settings and ids, and refuses wrong ones."""

import json

import numpy as np
import pytest

import tests.actors.odd_envs  # noqa: F401 - registers odd/*
from actors.envs import decode_settings, make_group, make_vector_env
from seed.env_config import AtariConfig, EnvConfig
from seed.errors import ConfigError


def test_settings_of_a_learner_are_decoded() -> None:
    """Nested settings reach the config, and the task's id replaces the one in the settings."""
    settings = json.dumps({"atari": {"life_loss_terminal": True}, "env_id": "ignored"})
    config = decode_settings("ALE/Pong-v5", settings)
    assert config == EnvConfig(env_id="ALE/Pong-v5", atari=AtariConfig(life_loss_terminal=True))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ('{"atari": {"stickiness": 1}}', "stickiness"),
        ('{"atari": {"noop_max": 0}}', "noop_max: expected at least 1"),
        ('{"atari": {"noop_max": "many"}}', "noop_max"),
        ("[1]", "env_settings_json: expected a mapping"),
        ("{", "env_settings_json: expected JSON"),
    ],
)
def test_bad_settings_are_refused_by_name(settings: str, reason: str) -> None:
    """An unknown key or impossible value names the field."""
    with pytest.raises(ConfigError, match=reason):
        decode_settings("ALE/Pong-v5", settings)


@pytest.mark.parametrize(
    ("env_id", "hint"),
    [
        ("CartPol-v1", "CartPole"),
        ("ALE/Ping-v5", "Ping"),
        ("no_such_module:Env-v0", "no_such_module"),
    ],
)
def test_unknown_id_is_refused_with_a_hint(env_id: str, hint: str) -> None:
    """The error names env_id and passes on what Gymnasium suggests."""
    with pytest.raises(ConfigError, match=rf"env_id: expected .*'{env_id}'.*{hint}"):
        make_vector_env(EnvConfig(env_id=env_id), num_envs=1)


def test_module_in_an_id_is_imported() -> None:
    """An id "module:Env-v0" makes environments that another package registers."""
    env = make_vector_env(EnvConfig(env_id="tests.actors.odd_envs:odd/NestedDict-v0"), num_envs=2)
    assert env.num_envs == 2


def test_keyword_arguments_reach_the_environment() -> None:
    """env_kwargs reach `gymnasium.make`."""
    config = EnvConfig(env_id="FrozenLake-v1", env_kwargs='{"map_name": "8x8"}')
    group = make_group(config, index=0, num_envs=1, base_seed=1)
    assert group.spec.observations[0].num_values == 64


def test_unknown_keyword_argument_is_refused() -> None:
    """The error names env_kwargs and the argument."""
    config = EnvConfig(env_id="CartPole-v1", env_kwargs='{"gravity": 1}')
    with pytest.raises(ConfigError, match="env_kwargs: expected arguments of CartPole-v1.*gravity"):
        make_vector_env(config, num_envs=1)


def test_groups_of_one_actor_have_different_seeds() -> None:
    """Two groups from one base seed start differently, the same group twice does not."""
    config = EnvConfig(env_id="CartPole-v1")
    first, second, again = (
        make_group(config, index=index, num_envs=2, base_seed=2**64 - 1).reset().observations[0]
        for index in (0, 1, 0)
    )
    assert (first != second).all()
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize(("direction", "wanted"), [(1, 1.0), (-1, -1.0)])
def test_catch_rewards_the_paddle_under_the_ball(direction: int, wanted: float) -> None:
    """Following the ball gives +1 after nine steps, fleeing from it -1."""
    group = make_group(EnvConfig(env_id="seed/Catch-v0"), index=0, num_envs=8, base_seed=1)
    row = group.reset()
    ball = row.observations[0][:, 0].argmax(axis=1)
    for _ in range(9):
        paddle = row.observations[0][:, -1].argmax(axis=1)
        # Fleeing from a ball in the middle needs a side to flee to.
        towards = np.where((ball == paddle) & (direction < 0), 1, np.sign(ball - paddle))
        row = group.step(1 + direction * towards)
    assert row.terminated.all()
    assert [tuple(episode) for episode in row.episodes] == [(env, wanted, 9) for env in range(8)]
