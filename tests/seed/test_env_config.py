"""Settings of an environment on their way from a learner to its actors."""

import json

import pytest

from seed.env_config import AtariConfig, EnvConfig, env_settings_from_json, env_settings_to_json
from seed.errors import ConfigError


@pytest.mark.parametrize(
    "env",
    [
        EnvConfig(),
        EnvConfig(env_id="seed/Recall-v0", env_kwargs='{"length": 40}'),
        EnvConfig(env_id="ALE/Pong-v5", atari=AtariConfig(repeat_action_probability=0.1)),
    ],
)
def test_settings_arrive_as_they_were_sent(env: EnvConfig) -> None:
    """Over JSON, which every language reads."""
    assert env_settings_from_json(env_settings_to_json(env)) == env


def test_settings_that_are_left_out_take_their_defaults() -> None:
    """An older learner knows fewer of them."""
    env = env_settings_from_json('{"env_id": "ALE/Pong-v5", "atari": {"noop_max": 30}}')
    assert env == EnvConfig(env_id="ALE/Pong-v5", atari=AtariConfig(noop_max=30))


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("{", "env_settings_json: expected JSON"),
        pytest.param("[" * 100_000, "env_settings_json: expected JSON", id="deep"),
        ('{"env_id": 3}', "env_settings_json.env_id: expected a string, got 3"),
        ('{"colour": true}', "env_settings_json.colour: unknown field"),
        ('{"atari": {"frame_skip": 0}}', "frame_skip: expected at least 1, got 0"),
        ('{"env_kwargs": "[]"}', "env_kwargs: expected a JSON object, got '\\[\\]'"),
    ],
)
def test_settings_that_cannot_work_are_refused(text: str, refusal: str) -> None:
    """Naming the field: they may come from another program."""
    with pytest.raises(ConfigError, match=refusal):
        env_settings_from_json(text)


def test_settings_are_an_object_with_the_names_of_the_flags() -> None:
    """So a client in another language finds what it knows from the command line."""
    settings = json.loads(env_settings_to_json(EnvConfig()))
    assert settings["env_id"] == "CartPole-v1"
    assert settings["atari"]["frame_skip"] == 4


def test_frame_skip_of_one_has_no_two_frames_to_pool() -> None:
    """Pooling them would freeze the screen."""
    AtariConfig(frame_skip=1, max_pool=False)
    with pytest.raises(ConfigError, match="frame_skip: expected at least 2 with max_pool"):
        AtariConfig(frame_skip=1)


@pytest.mark.parametrize("env_id", ["ALE/Pong-v5", "ale_py:ALE/Pong-v5"])
@pytest.mark.parametrize("argument", ["mode", "difficulty", "obs_type", "frameskip"])
def test_arguments_that_the_native_emulator_would_ignore_are_refused(
    env_id: str, argument: str
) -> None:
    """They are for gymnasium.make, which does not make ALE/*."""
    wanted = rf"env_kwargs: expected {{}} for ALE/\* \(use the named flags; .*{argument}"
    with pytest.raises(ConfigError, match=wanted):
        EnvConfig(env_id=env_id, env_kwargs=json.dumps({argument: 1}))
