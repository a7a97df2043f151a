"""Q values from value and advantages: identities, and acting equals training."""

import pytest
import torch
from torch import nn

from learner.config.run_config import NetworkConfig
from learner.networks.duelling_q import DuellingQ
from learner.records import map_tensors
from tests.learner.builders import (
    GEAR,
    NUM_ACTIONS,
    SCREEN,
    SPEED,
    env_spec,
    random_rows,
    seeded,
    with_random_weights,
)

T, B = 9, 4
SPEC = env_spec(SCREEN, SPEED, GEAR)

CONFIGS = {
    "mlp": NetworkConfig(hidden_sizes=(8,)),
    "conv": NetworkConfig(torso="small_conv", hidden_sizes=(8,), frame_stack=3),
    "everything": NetworkConfig(
        torso="small_conv", hidden_sizes=(8,), lstm_size=5, frame_stack=3, see_last_step=True
    ),
}


def make_network(config: str = "everything", head_size: int = 6) -> DuellingQ:
    """Returns a network whose weights are the same each time."""
    return with_random_weights(DuellingQ(SPEC, CONFIGS[config], head_size))


@pytest.mark.parametrize("head_size", [0, 6])
@pytest.mark.parametrize("config", CONFIGS)
def test_step_by_step_equals_unrolled(config: str, head_size: int) -> None:
    """Q values and the last state are equal, over random episode starts."""
    network = make_network(config, head_size)
    rows = random_rows(SPEC, T, B, seeded(1))
    state = network.initial_state(B)
    unrolled, expected_state = network(rows, state)
    assert unrolled.shape == (T, B, NUM_ACTIONS)
    assert unrolled.dtype == torch.float32
    for t in range(T):
        q_values, state = network(map_tensors(lambda x, t=t: x[t : t + 1], rows), state)
        torch.testing.assert_close(q_values, unrolled[t : t + 1])
    assert state.keys() == expected_state.keys() == network.initial_state(B).keys()
    for name, x in state.items():
        torch.testing.assert_close(x, expected_state[name])


@pytest.mark.parametrize("head_size", [0, 6])
@pytest.mark.parametrize("config", CONFIGS)
def test_mean_is_the_value_and_differences_are_those_of_the_advantages(
    config: str, head_size: int
) -> None:
    """Q(a) = V + A(a) - mean A, where both heads read the same features."""
    network = make_network(config, head_size)
    rows, state = random_rows(SPEC, T, B, seeded(2)), network.initial_state(B)
    q_values, _ = network(rows, state)
    features, _ = network.core.features(rows, state)
    values, advantages = network.value_head(features), network.advantage_head(features)
    torch.testing.assert_close(q_values.mean(-1, keepdim=True), values)
    torch.testing.assert_close(q_values.diff(dim=-1), advantages.diff(dim=-1))
    assert torch.equal(q_values.argmax(-1), advantages.argmax(-1))


@torch.no_grad()
def test_constant_added_to_the_advantages_changes_nothing() -> None:
    """A part that all actions share belongs to the value."""
    network, rows = make_network(), random_rows(SPEC, T, B, seeded(3))
    before, _ = network(rows, network.initial_state(B))
    output = network.advantage_head[-1]
    assert isinstance(output, nn.Linear)
    output.bias.add_(2)
    after, _ = network(rows, network.initial_state(B))
    torch.testing.assert_close(after, before)


def test_heads_have_one_hidden_layer_of_the_size_given_or_none() -> None:
    """A head is ReLU between two linear layers, or one linear layer."""
    for head, num_outputs in (("value_head", 1), ("advantage_head", NUM_ACTIONS)):
        hidden, relu, output = getattr(make_network("mlp", 7), head)
        assert isinstance(relu, nn.ReLU)
        assert (hidden.out_features, output.out_features) == (7, num_outputs)
        (linear,) = getattr(make_network("mlp", 0), head)
        assert linear.out_features == num_outputs


@pytest.mark.parametrize("head_size", [0, 64])
def test_values_start_near_zero(head_size: int) -> None:
    """The first targets are then the rewards, for any output of the torso."""
    torch.manual_seed(0)
    network = DuellingQ(SPEC, CONFIGS["mlp"], head_size)
    q_values, _ = network(random_rows(SPEC, T, B, seeded(4)), {})
    assert 0 < q_values.abs().max() < 0.1


@pytest.mark.parametrize("head_size", [0, 6])
def test_gradient_reaches_every_parameter(head_size: int) -> None:
    """The network has no parameter that it does not use."""
    network = make_network(head_size=head_size)
    q_values, _ = network(random_rows(SPEC, T, B, seeded(5)), network.initial_state(B))
    q_values.square().sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name
