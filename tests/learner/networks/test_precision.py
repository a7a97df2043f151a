"""Torsos in bfloat16: losses and gradients stay close, and all else is float32."""

import dataclasses

import pytest
import torch
from torch import Tensor, nn

from learner.agents.base import ActInput, Agent
from learner.agents.r2d2 import R2D2Agent
from learner.agents.vtrace import VTraceAgent
from learner.config.agent_config import R2D2Config, VTraceConfig
from learner.config.run_config import NetworkConfig
from learner.records import Batch, Unrolls, tensors_of
from tests.learner.builders import (
    SCREEN,
    SPEED,
    env_spec,
    random_rows,
    random_unrolls,
    seeded,
    with_random_weights,
)

SPEC = env_spec(SCREEN, SPEED)
B = 6
FLOAT32 = NetworkConfig(
    torso="small_conv", hidden_sizes=(16,), lstm_size=8, frame_stack=2, see_last_step=True
)
BFLOAT16 = dataclasses.replace(FLOAT32, precision="bfloat16")


def make_agent(name: str, network: NetworkConfig) -> Agent:
    """Returns a small agent."""
    if name == "vtrace":
        return VTraceAgent(SPEC, network, VTraceConfig(unroll_length=4))
    return R2D2Agent(SPEC, network, R2D2Config(sequence_length=4, burn_in=2, head_size=8))


def unrolls_for(agent: Agent) -> Unrolls:
    """Returns a batch as replay or the queue returns it."""
    num_rows = 5 if isinstance(agent, VTraceAgent) else 7
    state = agent.initial_state(B, torch.device("cpu"))
    return random_unrolls(SPEC, num_rows, B, state, seeded())


def loss_and_gradient(agent: Agent, network: nn.Module) -> tuple[Tensor, Tensor]:
    """Returns the loss of a batch, and all its gradients joined in one tensor."""
    unrolls = unrolls_for(agent)
    weights = None if isinstance(agent, VTraceAgent) else torch.ones(B)
    network.zero_grad()
    output = agent.loss(network, Batch(unrolls, weights), agent.num_valid(unrolls), progress=0.0)
    output.loss.backward()
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    assert all(x.dtype == torch.float32 for x in gradients)
    return output.loss.detach(), torch.cat([x.flatten() for x in gradients])


@pytest.mark.parametrize("name", ["vtrace", "r2d2"])
def test_loss_and_gradient_are_nearly_those_of_float32(name: str) -> None:
    """Only the torsos round to 8 bits."""
    plain, rounded = make_agent(name, FLOAT32), make_agent(name, BFLOAT16)
    network, twin = (with_random_weights(a.build_network()) for a in (plain, rounded))
    expected_loss, expected = loss_and_gradient(plain, network)
    loss, gradient = loss_and_gradient(rounded, twin)
    torch.testing.assert_close(loss, expected_loss, rtol=0.02, atol=0.02)
    assert not torch.equal(gradient, expected)
    assert torch.cosine_similarity(gradient, expected, dim=0) > 0.995
    assert gradient.norm() / expected.norm() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("name", ["vtrace", "r2d2"])
@torch.inference_mode()
def test_what_acting_records_is_float32(name: str) -> None:
    """Policy outputs and state are float32, since rounding errors of the state would add up."""
    agent = make_agent(name, BFLOAT16)
    network = with_random_weights(agent.build_network())
    inputs = ActInput(
        rows=random_rows(SPEC, 1, B, seeded()),
        state=agent.initial_state(B, torch.device("cpu")),
        slots=torch.arange(B),
    )
    output = agent.act(agent.acting_part(network), inputs, seeded())
    floats = [
        x for x in tensors_of((output.policy_outputs, output.state)) if x.dtype != torch.uint8
    ]
    assert {x.dtype for x in floats} == {torch.float32}
    assert all(p.dtype == torch.float32 for p in network.parameters())


@pytest.mark.parametrize("name", ["vtrace", "r2d2"])
def test_network_takes_the_weights_of_another_precision(name: str) -> None:
    """A run may be resumed, and its checkpoint evaluated, in either precision."""
    plain, rounded = (make_agent(name, c).build_network() for c in (FLOAT32, BFLOAT16))
    rounded.load_state_dict(with_random_weights(plain).state_dict())
