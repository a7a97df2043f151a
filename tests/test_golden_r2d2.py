"""The golden check for Q values: replayed sequences can be recomputed.

Over real gRPC with real actor processes, of which one is killed and replaced. What is
sampled has been through the slots, the open unrolls and the ring of the replay.
"""

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from torch import nn

from learner.agents.base import ActInput
from learner.agents.r2d2 import R2D2Agent
from learner.config.agent_config import R2D2Config
from learner.config.run_config import InferenceConfig, NetworkConfig
from learner.experience.replay.sequence_store import SequenceStore
from learner.records import Completed, Steps, Unrolls, map_tensors, select_unrolls
from seed.env_config import EnvConfig
from seed.specs import EnvSpec
from tests.support import counting_env
from tests.support.harness import ActingHarness

# Sequences of 11 rows, of which 4 burn in, start every 4 rows: 3 blocks each.
CONFIG = R2D2Config(sequence_length=6, burn_in=4, sequence_period=4, batch_size=1, head_size=16)
MIXED = EnvConfig(env_id=counting_env.ENV_ID, env_kwargs='{"longest": 7, "truncate_every": 2}')


def _sequences(all_completed: list[Completed]) -> list[Unrolls]:
    """Returns every whole sequence, B = 1, as replay joins it from blocks."""
    store = SequenceStore(
        capacity=1000, num_rows=CONFIG.num_rows, period=CONFIG.period, num_slots=16
    )
    heads = []
    for completed in all_completed:
        positions = store.claim(completed.slots)
        store.write(positions, completed.unrolls)
        heads.append(store.link(positions, completed.slots, completed.follows))
    gathered = store.gather(np.concatenate(heads))
    return [select_unrolls(gathered, b, b + 1) for b in range(gathered.num_unrolls)]


def _largest_deviation(
    agent: R2D2Agent, networks: dict[int, nn.Module], sequence: Unrolls
) -> float:
    """Returns the largest difference of Q values, stepping version by version."""
    state, largest = sequence.initial_state, 0.0
    for t in range(CONFIG.num_rows):
        row: Steps = map_tensors(lambda x, t=t: x[t : t + 1], sequence.steps)
        network = networks[int(row.policy_versions.item())]
        with torch.no_grad():
            inputs = ActInput(row.rows, state, slots=torch.zeros(1, dtype=torch.int64))
            output = agent.act(network, inputs, torch.Generator())
        difference = output.policy_outputs["q"] - row.policy_outputs["q"][0]
        largest = max(largest, difference.abs().max().item())
        state = output.state
    return largest


def _random_network(agent: R2D2Agent, version: int) -> nn.Module:
    """Returns an acting part whose Q values differ between rows and between versions."""
    network = agent.acting_part(agent.build_network())
    torch.manual_seed(version)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return network


@pytest.mark.parametrize("cuda_graphs", ["off", "on"])
@pytest.mark.parametrize("lstm_size", [0, 16])
def test_q_values_of_replayed_sequences_are_recomputed(
    tmp_path: Path, lstm_size: int, cuda_graphs: Literal["off", "on"]
) -> None:
    """From the state before a sequence's own first row, through burn-in and beyond it,
    across ends of episodes, versions of the weights and a restart of an actor; acted in
    batches as they came, or padded to few sizes."""
    network = NetworkConfig(lstm_size=lstm_size, frame_stack=4, see_last_step=True)
    agents: list[R2D2Agent] = []

    def remember(spec: EnvSpec) -> R2D2Agent:
        agents.append(R2D2Agent(spec, network, CONFIG))
        return agents[0]

    with (
        ActingHarness(
            tmp_path, MIXED, remember, InferenceConfig(cuda_graphs=cuda_graphs)
        ) as harness,
        harness.actor("--envs-per-group", "3"),
    ):
        with harness.actor("--envs-per-group", "2", "--num-groups", "1"):
            harness.wait_for_more(10)
            for version in range(1, 11):
                harness.publish(_random_network(agents[0], version), version)
                harness.wait_for_more(2)
        with harness.actor("--envs-per-group", "1", "--num-groups", "2"):
            harness.wait_for_more(60)
    sequences = _sequences(harness.completed)
    assert len(sequences) > 40
    assert any(s.steps.policy_versions.unique().numel() > 1 for s in sequences)
    assert any(s.steps.rows.is_first[1:].any() for s in sequences)
    assert max(s.steps.policy_outputs["q"].std() for s in sequences) > 0.1
    for sequence in sequences:
        assert _largest_deviation(agents[0], harness.networks, sequence) < 1e-4
    # Where one version acted, the forward passes of training give the same values.
    whole = [s for s in sequences if (s.steps.policy_versions == 10).all()]
    assert len(whole) >= 20
    for sequence in whole:
        assert agents[0].log_ratios(harness.networks[10], sequence).abs().max() < 1e-4
