"""Bytes per env step: SEED's layout against IMPALA's. `python tools/wire_bytes.py`

SEED sends observations to the learner and actions back. IMPALA's actors hold the network:
they fetch its parameters for every unroll and send the unroll when it is full. Both are
counted from what would be sent: serialised messages, state dicts, recorded unrolls.
"""

import dataclasses
import sys

import numpy as np
import torch

from learner.agents.base import Agent
from learner.agents.registry import make_agent
from learner.agents.steps import example_step
from learner.config.presets import PRESETS
from learner.config.run_config import NetworkConfig
from learner.records import State, Unrolls, map_tensors
from seed import wire
from seed.specs import ArraySpec, EnvSpec

UNROLL_LENGTH = 20
ENVS_PER_ACTOR = (1, 8, 32, 64)

SPEC = EnvSpec(
    observations=(
        ArraySpec(name="observation", dtype="uint8", shape=(84, 84), minimum=0, maximum=255),
    ),
    action=ArraySpec(name="action", dtype="int64", num_values=18),
)

NETWORKS = {
    "shallow": NetworkConfig(torso="impala_shallow", frame_stack=4),
    "Nature": NetworkConfig(torso="nature", frame_stack=4),
    "deep": NetworkConfig(torso="impala_deep", frame_stack=4),
    "deep, LSTM 256": NetworkConfig(torso="impala_deep", frame_stack=4, lstm_size=256),
}


def seed_bytes(num_envs: int) -> tuple[float, float]:
    """Returns the bytes (to the learner, to the actor) of an env step, `num_envs` a message."""
    frames = np.random.default_rng(0).integers(0, 256, (num_envs, 84, 84), np.uint8)
    outputs = wire.EnvOutputs(
        group=1,
        observations=(frames,),
        rewards=np.ones(num_envs, np.float32),
        is_first=np.zeros(num_envs, bool),
        terminated=np.zeros(num_envs, bool),
        truncated=np.zeros(num_envs, bool),
    )
    actions = wire.encode_actions(1, np.zeros(num_envs, np.int64), SPEC)
    up, down = len(wire.encode_env_outputs(outputs, SPEC)), actions.ByteSize()
    return up / num_envs, down / num_envs


def impala_bytes(agent: Agent, num_envs: int) -> tuple[float, float]:
    """Returns the same for an actor that acts itself, for `num_envs` environments at once.

    The parameters are fetched once for the unrolls of all its environments.
    """
    network = agent.build_network()
    parameters = sum(x.numel() * x.element_size() for x in network.state_dict().values())
    step = example_step(SPEC, agent, network)
    state = _num_bytes(step.initial_state)
    row = _num_bytes(step._replace(initial_state={}))
    rows = UNROLL_LENGTH + 1  # the one that bootstraps travels too
    return (rows * row + state) / UNROLL_LENGTH, parameters / UNROLL_LENGTH / num_envs


def _num_bytes(record: Unrolls | State) -> int:
    sizes: list[int] = []

    def add(tensor: torch.Tensor) -> torch.Tensor:
        sizes.append(tensor.numel() * tensor.element_size())
        return tensor

    map_tensors(add, record)
    return sum(sizes)


def main() -> int:
    """Prints a Markdown table; returns the exit code."""
    preset = PRESETS["atari-vtrace"].config
    print("| layout | envs an actor | to the learner | to the actor | both | against SEED |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for num_envs in ENVS_PER_ACTOR:
        seed_both = sum(seed_bytes(num_envs))
        _print_row("SEED, any network", num_envs, seed_bytes(num_envs), seed_both)
        for name, network in NETWORKS.items():
            config = dataclasses.replace(preset, network=network)
            cost = impala_bytes(make_agent(SPEC, config), num_envs)
            _print_row(f"IMPALA, {name}", num_envs, cost, seed_both)
    return 0


def _print_row(name: str, num_envs: int, cost: tuple[float, float], reference: float) -> None:
    up, down = cost
    both = up + down
    print(
        f"| {name} | {num_envs} | {up:,.0f} | {down:,.0f} | {both:,.0f} | {both / reference:.2f} |"
    )


if __name__ == "__main__":
    sys.exit(main())
