"""The whole path of a learner on a device that is not the CPU: same losses, no wrong device.

Acting, storing, experience, updates, publishing, priorities and checkpoints run on the pretended
device by the learner's own wiring, for every preset and every option of a network.
"""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from learner.checkpoint import load_checkpoint
from learner.config.agent_config import R2D2Config
from learner.config.presets import PRESETS
from learner.config.run_config import NetworkConfig, RunConfig
from learner.config.run_dir import RunDir
from seed.env_config import EnvConfig
from tests.support import dict_env
from tests.support.lockstep import Lockstep, in_lockstep
from tests.support.pretended_device import DEVICE

NUM_UPDATES = 2
ALGORITHMS = ("vtrace", "r2d2")
# Networks: every part alone, none, and all of them.
NETWORKS: dict[str, dict[str, Any]] = {
    "bare": {},
    "lstm": {"lstm_size": 8},
    "frame stack": {"frame_stack": 3},
    "last step": {"see_last_step": True},
    "all parts": {"lstm_size": 8, "frame_stack": 3, "see_last_step": True, "center_images": True},
}


def of_preset(name: str, **changes: Any) -> RunConfig:
    """Returns a preset in lockstep, with short unrolls; screens that cost nothing for Atari."""
    config = dataclasses.replace(PRESETS[name].config, **changes)
    if config.env.is_atari:
        config = dataclasses.replace(config, env=EnvConfig(env_id="seed/Null-v0"))
    is_r2d2 = isinstance(config.agent, R2D2Config)
    shorter = {"sequence_length": 6, "burn_in": 2, "n_step": 2} if is_r2d2 else {"unroll_length": 5}
    agent = dataclasses.replace(config.agent, **shorter)
    # So large that a gradient of 0 but for rounding makes no step.
    optimizer = dataclasses.replace(config.optimizer, epsilon=0.1)
    return in_lockstep(dataclasses.replace(config, agent=agent, optimizer=optimizer))


def assert_same_on_device(config: RunConfig, directory: Path, **options: Any) -> None:
    """The losses on the device are those on the CPU."""
    wanted = Lockstep(config, directory / "cpu", **options).losses(NUM_UPDATES)
    found = Lockstep(config, directory / "device", DEVICE, **options).losses(NUM_UPDATES)
    # The device takes a batch whole and the CPU in parts, so sums may round otherwise.
    assert found == pytest.approx(wanted, rel=1e-4, abs=1e-9)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_train_on_a_device_as_on_the_cpu(tmp_path: Path, name: str) -> None:
    """Each with its own network, experience and optimiser."""
    assert_same_on_device(of_preset(name), tmp_path)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_networks_train_on_a_device_as_on_the_cpu(
    tmp_path: Path, algorithm: str, network: str
) -> None:
    """With each part of a network, on an observation of an image, numbers and a choice."""
    env = EnvConfig(env_id=dict_env.ENV_ID)
    parts = NetworkConfig(hidden_sizes=(16,), **NETWORKS[network])
    assert_same_on_device(of_preset(f"cartpole-{algorithm}", env=env, network=parts), tmp_path)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_padded_batches_and_evaluation_are_the_same_on_a_device(
    tmp_path: Path, algorithm: str
) -> None:
    """Batches padded as for recorded graphs, of which some rows act greedily and store nothing."""
    config = of_preset(f"cartpole-{algorithm}")
    inference = dataclasses.replace(config.inference, cuda_graphs="on", max_inference_batch=16)
    config = dataclasses.replace(config, inference=inference)
    assert_same_on_device(config, tmp_path, num_eval_envs=3)


@pytest.mark.parametrize("layout", ["on", "off"])
def test_memory_layout_of_images_is_the_same_on_a_device(tmp_path: Path, layout: Any) -> None:
    """Channels last in acting and training, or nowhere."""
    config = of_preset("atari-vtrace-cpu")
    learner = dataclasses.replace(config.learner, channels_last=layout)
    assert_same_on_device(dataclasses.replace(config, learner=learner), tmp_path)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    ("saved_on", "resumed_on"),
    [(DEVICE, DEVICE), (torch.device("cpu"), DEVICE), (DEVICE, torch.device("cpu"))],
    ids=["device", "cpu to device", "device to cpu"],
)
def test_run_is_resumed_on_any_device(
    tmp_path: Path, algorithm: str, saved_on: torch.device, resumed_on: torch.device
) -> None:
    """The next losses are those of a run that was saved and resumed on the CPU."""
    config = of_preset(f"cartpole-{algorithm}")
    if isinstance(config.agent, R2D2Config):
        # A replay that is full at the start may be sampled before or after the next insert.
        replay = dataclasses.replace(config.agent.replay, checkpoint_replay=False)
        agent = dataclasses.replace(config.agent, replay=replay)
        config = dataclasses.replace(config, agent=agent)

    def resumed(name: str, first: torch.device, second: torch.device) -> list[float]:
        run_dir = RunDir(tmp_path / name)
        Lockstep(config, run_dir.path, first).losses(NUM_UPDATES)
        checkpoint = load_checkpoint(run_dir.checkpoints)
        return Lockstep(config, run_dir.path, second).losses(NUM_UPDATES, checkpoint)

    cpu = torch.device("cpu")
    wanted = resumed("cpu", cpu, cpu)
    assert resumed("other", saved_on, resumed_on) == pytest.approx(wanted, rel=1e-4)
