"""config.yaml and the environment settings read back as written, and name what is wrong."""

import dataclasses
import math
import os
from pathlib import Path

import pytest
import yaml

from learner.config.agent_config import R2D2Config, ReplayConfig, VTraceConfig
from learner.config.config_file import dump_config, load_config, load_provenance
from learner.config.presets import PRESETS
from learner.config.run_config import LearnerConfig, NetworkConfig, RunConfig
from seed.env_config import AtariConfig, EnvConfig, env_settings_from_json, env_settings_to_json
from seed.errors import ConfigError

UNUSUAL = RunConfig(
    env=EnvConfig(env_id="ALE/Pong-v5", atari=AtariConfig(full_action_space=False)),
    network=NetworkConfig(hidden_sizes=(7,)),
    agent=VTraceConfig(
        reward_clip_min=-math.inf, reward_clip_max=math.inf, entropy_target=0.5, entropy_cost=1e-7
    ),
    learner=LearnerConfig(device="cuda:1", total_env_steps=10**12),
    rng_seed=7,
)


def write_yaml(path: Path, text: str) -> Path:
    """Writes `text` as the config file of a run and returns its path."""
    path.write_text(text, encoding="utf-8")
    return path


RECURRENT = RunConfig(agent=R2D2Config(burn_in=3, replay=ReplayConfig(replay_min_size=7)))


@pytest.mark.parametrize(
    "config", [UNUSUAL, RECURRENT, *(preset.config for preset in PRESETS.values())]
)
def test_config_reads_back_as_written(tmp_path: Path, config: RunConfig) -> None:
    """Infinities, none, tuples and small floats survive the file."""
    path = tmp_path / "config.yaml"
    dump_config(config, path, name="x")
    assert load_config(path) == config


def test_absent_fields_take_their_defaults(tmp_path: Path) -> None:
    """A file may hold only the fields that it changes."""
    path = write_yaml(tmp_path / "config.yaml", "optimizer: {learning_rate: 6e-4}")
    config = load_config(path)
    assert config.optimizer.learning_rate == 6e-4
    assert config == dataclasses.replace(RunConfig(), optimizer=config.optimizer)


def test_provenance_is_written_and_ignored_on_load(tmp_path: Path) -> None:
    """The file says which preset the run started from, and the machine and code that it ran on."""
    path = tmp_path / "config.yaml"
    dump_config(UNUSUAL, path, name="atari-vtrace-cpu")
    provenance = load_provenance(path)
    assert provenance["name"] == "atari-vtrace-cpu"
    assert {"python", "numpy", "grpcio"} <= provenance["versions"].keys()
    assert {"command", "git_commit"} <= provenance.keys()


def test_commit_is_what_an_image_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container has no repository, so an environment variable of the image holds the commit."""
    monkeypatch.setenv("SEED_GIT_COMMIT", "0123abc")
    dump_config(UNUSUAL, tmp_path / "config.yaml", name="x")
    assert load_provenance(tmp_path / "config.yaml")["git_commit"] == "0123abc"


def test_a_failed_write_leaves_the_old_file_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between writing and renaming leaves the old file."""
    path = tmp_path / "config.yaml"
    dump_config(UNUSUAL, path, name="x")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        dump_config(RunConfig(), path, name="x")
    assert load_config(path) == UNUSUAL


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("zed: 1", "zed: unknown field"),
        ("env: {foo: 3}", "env.foo: unknown field"),
        ("actor: 3", "actor: expected a mapping, got 3"),
        ("env: {atari: {frame_skip: 0}}", "env.atari.frame_skip: expected at least 1, got 0"),
        ("agent: {unroll_length: true}", "agent.unroll_length: expected an integer, got True"),
        ("agent: {unroll_length: 20.0}", "agent.unroll_length: expected an integer, got 20.0"),
        ("agent: {value_cost: abc}", "agent.value_cost: expected a number, got 'abc'"),
        ("agent: {value_cost: .nan}", "agent.value_cost: expected a number, got nan"),
        ("network: {hidden_sizes: [3, x]}", "network.hidden_sizes[1]: expected an integer, got"),
        ("network: {hidden_sizes: '33'}", "network.hidden_sizes: expected a list, got '33'"),
        ("network: {torso: foo}", "network.torso: expected one of 'auto', "),
        ("network: {see_last_step: 1}", "network.see_last_step: expected true or false, got 1"),
        ("agent: {algorithm: dqn}", "agent.algorithm: expected one of 'vtrace', 'r2d2', or mod"),
        ("agent: {algorithm: 3}", "agent.algorithm: expected a string, got 3"),
        ("agent: {algorithm: 'no_such:X'}", "agent.algorithm: expected a module in the current"),
        ("agent: {algorithm: r2d2, unroll_length: 3}", "agent.unroll_length: unknown field"),
        ("agent: {algorithm: r2d2, burn_in: -1}", "agent.burn_in: expected 0 or more, got -1"),
        ("agent: [r2d2]", "agent: expected a mapping, got ['r2d2']"),
        ("learner: {device: 3}", "learner.device: expected a string, got 3"),
        ("rng_seed: -1", "rng_seed: expected 0 .. 2^31 - 1, got -1"),
        ("- 1", "expected a YAML mapping, got list"),
        ("a: [", "expected YAML, got"),
        ("!!python/object/apply:os.system ['true']", "expected YAML, got"),
    ],
)
def test_a_wrong_field_is_named_with_its_path(tmp_path: Path, text: str, message: str) -> None:
    """The error names the file, the field, what was expected and the value."""
    path = write_yaml(tmp_path / "config.yaml", text)
    with pytest.raises(ConfigError) as error:
        load_config(path)
    assert message in str(error.value)
    assert str(path) in str(error.value)


def test_every_wrong_field_is_named_at_once(tmp_path: Path) -> None:
    """The user can correct all errors of a file at once."""
    path = write_yaml(tmp_path / "config.yaml", "zed: 1\nnetwork: {precision: foo, lstm_size: x}")
    with pytest.raises(ConfigError) as error:
        load_config(path)
    for field in ("zed", "network.precision", "network.lstm_size"):
        assert f"{field}:" in str(error.value)


def test_a_missing_file_is_a_config_error(tmp_path: Path) -> None:
    """The path is in the message."""
    with pytest.raises(ConfigError, match="nowhere.yaml: expected a readable file"):
        load_config(tmp_path / "nowhere.yaml")


def test_the_file_is_plain_yaml(tmp_path: Path) -> None:
    """Any YAML reader can read it."""
    path = tmp_path / "config.yaml"
    dump_config(UNUSUAL, path, name="x")
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert document["network"]["hidden_sizes"] == [7]
    assert document["agent"]["reward_clip_max"] == math.inf


def test_env_settings_read_back_as_written() -> None:
    """The actor builds the environment that the learner's settings describe."""
    assert env_settings_from_json(env_settings_to_json(UNUSUAL.env)) == UNUSUAL.env


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "env_settings_json: expected JSON, got"),
        ("[]", "env_settings_json: expected a mapping, got []"),
        ('{"bar": 1}', "env_settings_json.bar: unknown field"),
        ('{"atari": {"bar": 1}}', "env_settings_json.atari.bar: unknown field"),
        ('{"env_id": ""}', "env_settings_json.env_id: expected a registered environment id"),
        ('{"env_kwargs": "3"}', "env_settings_json.env_kwargs: expected a JSON object"),
    ],
)
def test_wrong_env_settings_name_the_field(text: str, message: str) -> None:
    """An actor refuses settings that it does not know, and names the field."""
    with pytest.raises(ConfigError) as error:
        env_settings_from_json(text)
    assert message in str(error.value)
