"""One gradient for a batch that any number of threads share, in any number of parts."""

from typing import Any

import pytest
import torch
from torch import nn

from learner.agents.base import LossOutput
from learner.agents.vtrace import VTraceAgent
from learner.config.agent_config import VTraceConfig
from learner.config.run_config import NetworkConfig
from learner.records import Batch, Unrolls
from learner.training.gradients import Gradients
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
    """Returns an agent with everything that threads could mix up."""
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


@pytest.mark.parametrize("max_rows", [10, 1000])
@pytest.mark.parametrize("num_threads", [1, 2, 3, 8])
def test_parts_together_give_the_gradient_of_the_batch(
    num_threads: int, max_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metrics agree too, also with more threads than unrolls and several parts a thread."""
    monkeypatch.setattr("learner.training.gradients.MAX_ROWS_ON_CPU", max_rows)
    agent = make_agent()
    network, unrolls = with_random_weights(agent.build_network()), unrolls_for(agent)
    agent.update_statistics(network, unrolls)
    output = agent.loss(network, Batch(unrolls), agent.num_valid(unrolls), progress=0.0)
    output.loss.backward()
    expected = gradients_of(network)
    metrics, priorities = Gradients(agent, network, num_threads).compute(Batch(unrolls))
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
    """This holds for every thread."""
    agent = make_agent()
    network = with_random_weights(agent.build_network())
    gradients = Gradients(agent, network, num_threads)
    gradients.compute(Batch(unrolls_for(agent, 1)))
    expected = gradients_of(network)
    gradients.compute(Batch(unrolls_for(agent, 2)))
    gradients.compute(Batch(unrolls_for(agent, 1)))
    for name, got in gradients_of(network).items():
        assert torch.equal(got, expected[name]), name


def test_every_thread_sees_updates_of_weights_and_statistics() -> None:
    """The change may be an optimiser's step, a loaded checkpoint, or a new running mean."""
    agent = make_agent()
    network, unrolls = with_random_weights(agent.build_network()), unrolls_for(agent)
    gradients = Gradients(agent, network, 3)
    gradients.compute(Batch(unrolls))
    torch.optim.SGD(network.parameters(), lr=0.1).step()
    agent.update_statistics(network, unrolls)
    assert_like_a_single_thread(agent, network, gradients)
    network.load_state_dict(with_random_weights(agent.build_network(), 1).state_dict())
    assert_like_a_single_thread(agent, network, gradients)


def assert_like_a_single_thread(
    agent: VTraceAgent, network: nn.Module, gradients: Gradients
) -> None:
    """Asserts that threads with updates behind them compute what a new single thread does."""
    unrolls = unrolls_for(agent, 3)
    gradients.compute(Batch(unrolls))
    got = gradients_of(network)
    Gradients(agent, network, 1).compute(Batch(unrolls))
    for name, wanted in gradients_of(network).items():
        torch.testing.assert_close(got[name], wanted, rtol=1e-4, atol=1e-5, msg=name)


def test_batch_of_one_unroll_needs_one_thread() -> None:
    """The other threads have no work."""
    agent = make_agent()
    network = with_random_weights(agent.build_network())
    unrolls = random_unrolls(
        agent.spec, 5, 1, agent.initial_state(1, torch.device("cpu")), seeded()
    )
    metrics, _ = Gradients(agent, network, 4).compute(Batch(unrolls))
    assert all(value.isfinite() for value in metrics.values())


def test_failure_on_any_thread_is_raised() -> None:
    """If a thread died in silence, half of each batch would be trained."""
    agent = make_agent()
    network = with_random_weights(agent.build_network())
    unrolls = unrolls_for(agent)
    # Only the last thread's part holds the action that does not exist.
    unrolls.steps.actions[0, -1] = 99
    with pytest.raises((IndexError, RuntimeError)):
        Gradients(agent, network, 3).compute(Batch(unrolls))


@pytest.mark.parametrize(("max_rows", "sizes"), [(1000, [3, 2]), (10, [2, 1, 2]), (1, [1] * 5)])
def test_no_part_is_larger_than_the_caches_hold(
    max_rows: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of two threads splits its own share, down to one unroll at least."""
    monkeypatch.setattr("learner.training.gradients.MAX_ROWS_ON_CPU", max_rows)
    agent = make_agent()
    network = with_random_weights(agent.build_network())
    seen: list[int] = []
    loss = agent.loss

    def watched(network: nn.Module, batch: Batch, *args: Any) -> LossOutput:
        seen.append(batch.unrolls.num_unrolls)
        return loss(network, batch, *args)

    monkeypatch.setattr(agent, "loss", watched)
    Gradients(agent, network, 2).compute(Batch(unrolls_for(agent)))
    assert sorted(seen) == sorted(sizes)


def test_priorities_stay_in_the_order_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replay gets them by place, however the batch was split."""
    monkeypatch.setattr("learner.training.gradients.MAX_ROWS_ON_CPU", 10)
    agent = make_agent()
    network = with_random_weights(agent.build_network())
    loss = agent.loss

    def with_priorities(network: nn.Module, batch: Batch, *args: Any) -> LossOutput:
        priorities = batch.unrolls.steps.policy_versions[0].float()
        return loss(network, batch, *args)._replace(priorities=priorities)

    monkeypatch.setattr(agent, "loss", with_priorities)
    unrolls = unrolls_for(agent)
    _, priorities = Gradients(agent, network, 2).compute(Batch(unrolls))
    assert priorities is not None
    assert torch.equal(priorities, unrolls.steps.policy_versions[0].float())


def test_each_unroll_keeps_its_importance_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part of the batch gets the weights of its own unrolls."""
    monkeypatch.setattr("learner.training.gradients.MAX_ROWS_ON_CPU", 10)
    agent = make_agent()
    network = with_random_weights(agent.build_network())
    loss = agent.loss

    def with_weights(network: nn.Module, batch: Batch, *args: Any) -> LossOutput:
        return loss(network, batch, *args)._replace(priorities=batch.importance_weights)

    monkeypatch.setattr(agent, "loss", with_weights)
    weights = torch.linspace(0.1, 1.0, B)
    _, seen = Gradients(agent, network, 2).compute(Batch(unrolls_for(agent), weights))
    assert seen is not None
    assert torch.equal(seen, weights)
