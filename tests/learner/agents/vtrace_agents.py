"""A V-trace agent, weights, unrolls and losses, for the tests of its loss and of its acting."""

from typing import Any

import torch
from torch import nn

from learner.agents.base import LossOutput
from learner.agents.vtrace import VTraceAgent, VTraceNetwork
from learner.config.agent_config import VTraceConfig
from learner.config.run_config import NetworkConfig
from learner.records import Batch, Unrolls
from tests.learner.builders import (
    SCREEN,
    SPEED,
    env_spec,
    random_unrolls,
    seeded,
    with_random_weights,
)

T, B = 6, 5
CPU = torch.device("cpu")


def make_agent_and_network(
    network: NetworkConfig | None = None, **config: Any
) -> tuple[VTraceAgent, VTraceNetwork]:
    """Returns an agent, by default for a small vector and an mlp, and weights for it."""
    network = network or NetworkConfig(hidden_sizes=(16,))
    spec = env_spec(SCREEN, SPEED) if network.torso == "small_conv" else env_spec(SPEED)
    agent = VTraceAgent(spec, network, VTraceConfig(unroll_length=T, batch_size=B, **config))
    return agent, with_random_weights(agent.build_network())


def unrolls_for(agent: VTraceAgent, rng_seed: int = 1) -> Unrolls:
    """Returns off-policy unrolls with every combination of flags."""
    state = agent.initial_state(B, CPU)
    return random_unrolls(agent.spec, T + 1, B, state, seeded(rng_seed))


def loss_of(agent: VTraceAgent, network: nn.Module, unrolls: Unrolls) -> LossOutput:
    """Returns the loss of unrolls that are a whole batch."""
    return agent.loss(network, Batch(unrolls), agent.num_valid(unrolls), progress=0.0)
