"""Policies for Python act as `seed eval` does, on one observation or on a batch."""

import dataclasses
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seed
from actors.envs import make_group
from learner.agents.registry import make_agent
from learner.checkpoint import save_checkpoint
from learner.config.config_file import dump_config, load_config
from learner.config.presets import PRESETS
from learner.config.run_config import NetworkConfig, RunConfig
from learner.policy import Policy, PolicyState, load_policy
from seed.errors import CheckpointError, ConfigError, SpecError
from seed.serialization import unstructure
from seed.specs import ArraySpec, EnvSpec
from tests.learner.builders import GEAR, SCREEN, SPEED, env_spec, with_random_weights
from tests.support.processes import TIMEOUT_S, command

EVERYTHING = NetworkConfig(hidden_sizes=(16,), lstm_size=8, frame_stack=2, see_last_step=True)


def save_run(directory: Path, spec: EnvSpec, preset: str, network: NetworkConfig) -> RunConfig:
    """Writes a run whose policy has random weights."""
    config = dataclasses.replace(PRESETS[preset].config, network=network)
    directory.mkdir(parents=True, exist_ok=True)
    dump_config(config, directory / "config.yaml", name=preset)
    weights = with_random_weights(make_agent(spec, config).build_network()).state_dict()
    state = {"spec": unstructure(spec), "env_steps": 0}
    save_checkpoint(directory / "checkpoints", 1, weights, state, keep=1)
    return config


def cartpole_spec() -> EnvSpec:
    """Returns CartPole's spec."""
    config = PRESETS["cartpole-vtrace"].config.env
    return make_group(config, index=0, num_envs=1, base_seed=0).spec


def play(policy: Policy, num_envs: int, num_games: int, rng_seed: int) -> list[float]:
    """Returns the returns of games, split over environments as `seed eval` splits them."""
    config = PRESETS["cartpole-vtrace"].config.env
    group = make_group(config, index=0, num_envs=num_envs, base_seed=rng_seed)
    left = [num_games // num_envs] * num_envs
    returns: list[float] = []
    outputs, state = group.reset(), None
    while any(left):
        actions, state = policy.act(
            outputs.observations[0], state, reward=outputs.rewards, is_first=outputs.is_first
        )
        outputs = group.step(actions)
        for episode in outputs.episodes:
            if left[episode.env]:
                left[episode.env] -= 1
                returns.append(episode.episode_return)
    return returns


def test_games_are_those_of_seed_eval(tmp_path: Path) -> None:
    """The command and a loop in Python play the same environments with the same returns."""
    save_run(tmp_path / "run", cartpole_spec(), "cartpole-vtrace", EVERYTHING)
    flags = ("--episodes", 6, "--num-envs", 2, "--rng-seed", 5, "--json")
    done = subprocess.run(
        command("eval", tmp_path / "run", *flags),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    expected = json.loads(done.stdout)["returns"]
    assert len(set(expected)) > 1
    assert play(seed.load_policy(tmp_path / "run"), 2, 6, rng_seed=5) == expected


@pytest.mark.parametrize("preset", ["cartpole-vtrace", "cartpole-r2d2"])
def test_one_observation_is_a_batch_of_one(tmp_path: Path, preset: str) -> None:
    """An environment gets the same actions alone and in a batch, step by step."""
    save_run(tmp_path, cartpole_spec(), preset, EVERYTHING)
    policy = load_policy(tmp_path, device="cpu")
    rng = np.random.default_rng(0)
    single: PolicyState | None = None
    batched: PolicyState | None = None
    for _ in range(20):
        observation = rng.normal(size=(3, 4)).astype(np.float32)
        action, single = policy.act(observation[1], single, reward=1.0)
        actions, batched = policy.act(observation, batched, reward=1.0)
        assert isinstance(action, int)
        assert actions.dtype == np.int64 and actions.shape == (3,)
        assert action == actions[1]
        for name, alone in single.network.items():
            torch.testing.assert_close(alone[0], batched.network[name][1])


def test_episode_starts_afresh_where_is_first_is_set(tmp_path: Path) -> None:
    """`is_first` clears the state of one environment and keeps that of the other."""
    save_run(tmp_path, cartpole_spec(), "cartpole-vtrace", EVERYTHING)
    policy = load_policy(tmp_path, device="cpu")
    observations = np.random.default_rng(0).normal(size=(4, 2, 4)).astype(np.float32)
    _, state = policy.act(observations[0])
    _, state = policy.act(observations[1], state)
    _, continued = policy.act(observations[2], state, is_first=[True, False])
    _, fresh = policy.act(observations[2])
    _, old = policy.act(observations[2], state)
    for name in ("lstm/hidden", "lstm/cell"):
        assert torch.equal(continued.network[name][0], fresh.network[name][0])
        assert torch.equal(continued.network[name][1], old.network[name][1])
        assert not torch.equal(continued.network[name][1], fresh.network[name][1])


@pytest.mark.parametrize("as_batch", [False, True])
def test_nested_observations_are_read_by_their_names(tmp_path: Path, as_batch: bool) -> None:
    """Dicts may have any order of keys, as the environment returns them."""
    names = ("screen", "body/0", "body/1")
    leaves = [
        dataclasses.replace(leaf, name=name)
        for leaf, name in zip((SCREEN, SPEED, GEAR), names, strict=True)
    ]
    save_run(tmp_path, env_spec(*leaves), "cartpole-vtrace", NetworkConfig(hidden_sizes=(8,)))
    policy = load_policy(tmp_path, device="cpu")
    leading = (2,) if as_batch else ()
    observation = {
        "body": (np.ones((*leading, 3)), np.full(leading, 4)),
        "screen": np.zeros((*leading, 5, 6), np.uint8),
    }
    action, _ = policy.act(observation)
    assert np.shape(action) == leading
    with pytest.raises(SpecError, match=r"observation: expected a leaf 'screen', got leaves"):
        policy.act({"body": observation["body"]})


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (np.zeros(3), r"observations\['observation'\]: expected shape \[4\], or \[B, ...\] of it"),
        (np.zeros((2, 2, 4)), r"expected shape \[4\]"),
    ],
)
def test_observations_of_another_shape_are_refused(
    tmp_path: Path, observation: Any, message: str
) -> None:
    """The message names the leaf, what was expected and what came."""
    save_run(tmp_path, cartpole_spec(), "cartpole-vtrace", EVERYTHING)
    policy = load_policy(tmp_path, device="cpu")
    with pytest.raises(SpecError, match=message):
        policy.act(observation)


def test_values_and_states_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """The value is out of range, or the state is of a batch of another size."""
    spec = env_spec(ArraySpec(name="observation", dtype="int64", num_values=5))
    save_run(tmp_path, spec, "cartpole-vtrace", NetworkConfig(hidden_sizes=(8,)))
    policy = load_policy(tmp_path, device="cpu")
    with pytest.raises(SpecError, match=r"expected values in 0 .. 4, got \[5\]"):
        policy.act(5)
    _, state = policy.act(np.array([1, 2]))
    with pytest.raises(SpecError, match="state: expected one for 3 environments, got one for 2"):
        policy.act(np.array([1, 2, 3]), state)


def test_path_device_and_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """A path without a run, a device that is not there, the weights of another network."""
    with pytest.raises(ConfigError, match="RUN: expected a run directory"):
        load_policy(tmp_path / "nothing")
    save_run(tmp_path, cartpole_spec(), "cartpole-vtrace", EVERYTHING)
    with pytest.raises(ConfigError, match="device: expected one that this machine has"):
        load_policy(tmp_path, device="no such device")
    config = load_config(tmp_path / "config.yaml")
    other = dataclasses.replace(config, network=NetworkConfig(hidden_sizes=(9,)))
    dump_config(other, tmp_path / "config.yaml", name="other")
    with pytest.raises(CheckpointError, match="expected the network of the run's config"):
        load_policy(tmp_path)


def test_run_of_an_earlier_version_says_how_to_read_its_images(tmp_path: Path) -> None:
    """Its config.yaml has no layout, and its weights are of the layout that was guessed then."""
    spec = env_spec(ArraySpec(name="screen", dtype="uint8", shape=(12, 84, 84)))
    earlier = NetworkConfig(image_layout=("channels_last",), torso="small_conv")
    save_run(tmp_path, spec, "cartpole-vtrace", earlier)
    config_yaml = tmp_path / "config.yaml"
    text = config_yaml.read_text()
    config_yaml.write_text(text.replace("  image_layout:\n  - channels_last\n", ""))
    assert load_config(config_yaml).network.image_layout == ()
    advice = "observations otherwise; .* --image-layout screen=channels_last, or network.image_lay"
    with pytest.raises(CheckpointError, match=advice):
        load_policy(tmp_path)
    config_yaml.write_text(text.replace("- channels_last", "- screen=channels_last"))
    load_policy(tmp_path)
