"""One gradient, however many threads share the batch."""

import pytest
import torch
from torch import nn

from learner.agents.vtrace import VTraceAgent
from learner.gradients import Gradients
from learner.records import Unrolls
from seed.agent_config import VTraceConfig
from seed.config import NetworkConfig
from tests.learner.builders import (
    SCREEN,
    SPEED,
    env_spec,
    random_unrolls,
    seeded,
    with_random_weights,
)

B = 5


def make_agent() -> VTraceAgent:
    """Returns one with everything that threads could mix up."""
    network = NetworkConfig(
        torso="small_conv", hidden_sizes=(8,), lstm_size=5, frame_stack=2, center_images=True
    )
    config = VTraceConfig(unroll_length=4, batch_size=B, entropy_target=0.5)
    return VTraceAgent(env_spec(SCREEN, SPEED), network, config)


def unrolls_for(agent: VTraceAgent, rng_seed: int = 0) -> Unrolls:
    """Returns a random batch."""
    state = agent.initial_state(B, torch.device("cpu"))
    return random_unrolls(agent.spec, 5, B, state, seeded(rng_seed))


def gradients_of(network: nn.Module) -> dict[str, torch.Tensor]:
    """Returns copies of the gradients by name."""
    return {n: p.grad.clone() for n, p in network.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("num_threads", [1, 2, 3, 8])
def test_threads_together_give_the_gradient_of_the_batch(num_threads: int) -> None:
    """And its metrics; also with more threads than unrolls."""
    agent = make_agent()
    network, unrolls = with_random_weights(agent.build_network()), unrolls_for(agent)
    agent.update_statistics(network, unrolls)
    output = agent.loss(network, unrolls, agent.num_valid(unrolls))
    output.loss.backward()
    expected = gradients_of(network)
    metrics, priorities = Gradients(agent, network, num_threads).compute(unrolls)
    assert priorities is None
    got = gradients_of(network)
    assert got.keys() == expected.keys()
    for name, wanted in expected.items():
        torch.testing.assert_close(got[name], wanted, rtol=1e-4, atol=1e-5, msg=name)
    assert metrics.keys() == output.metrics.keys()
    for name, wanted in output.metrics.items():
        torch.testing.assert_close(metrics[name], wanted, msg=name)


@pytest.mark.parametrize("num_threads", [1, 3])
def test_gradients_of_the_batch_before_are_forgotten(num_threads: int) -> None:
    """On every thread."""
    agent = make_agent()
    network = with_random_weights(agent.build_network())
    gradients = Gradients(agent, network, num_threads)
    gradients.compute(unrolls_for(agent, 1))
    expected = gradients_of(network)
    gradients.compute(unrolls_for(agent, 2))
    gradients.compute(unrolls_for(agent, 1))
    for name, got in gradients_of(network).items():
        assert torch.equal(got, expected[name]), name


def test_every_thread_sees_updates_of_weights_and_statistics() -> None:
    """An optimiser's step, a checkpoint loaded, a running mean that moved."""
    agent = make_agent()
    network, unrolls = with_random_weights(agent.build_network()), unrolls_for(agent)
    gradients = Gradients(agent, network, 3)
    gradients.compute(unrolls)
    torch.optim.SGD(network.parameters(), lr=0.1).step()
    agent.update_statistics(network, unrolls)
    assert_like_a_single_thread(agent, network, gradients)
    network.load_state_dict(with_random_weights(agent.build_network(), 1).state_dict())
    assert_like_a_single_thread(agent, network, gradients)


def assert_like_a_single_thread(
    agent: VTraceAgent, network: nn.Module, gradients: Gradients
) -> None:
    """Asserts that threads with an own past compute what a fresh single one does."""
    unrolls = unrolls_for(agent, 3)
    gradients.compute(unrolls)
    got = gradients_of(network)
    Gradients(agent, network, 1).compute(unrolls)
    for name, wanted in gradients_of(network).items():
        torch.testing.assert_close(got[name], wanted, rtol=1e-4, atol=1e-5, msg=name)


def test_batch_of_one_unroll_needs_one_thread() -> None:
    """The others have nothing to do."""
    agent = make_agent()
    network = with_random_weights(agent.build_network())
    unrolls = random_unrolls(
        agent.spec, 5, 1, agent.initial_state(1, torch.device("cpu")), seeded()
    )
    metrics, _ = Gradients(agent, network, 4).compute(unrolls)
    assert all(value.isfinite() for value in metrics.values())


def test_failure_on_any_thread_is_raised() -> None:
    """A thread that died in silence would train on half of each batch."""
    agent = make_agent()
    network = with_random_weights(agent.build_network())
    unrolls = unrolls_for(agent)
    # Only the last thread's part holds the action that does not exist.
    unrolls.actions[0, -1] = 99
    with pytest.raises((IndexError, RuntimeError)):
        Gradients(agent, network, 3).compute(unrolls)
