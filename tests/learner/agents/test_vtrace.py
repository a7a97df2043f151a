"""The V-trace agent: how it acts, what its network sees, and how it is made."""

import pytest
import torch
from torch import Tensor

from learner.agents.base import ActInput
from learner.config.run_config import NetworkConfig
from learner.networks.torso_core import TorsoCore
from learner.records import Unrolls, map_tensors
from tests.learner.agents.vtrace_agents import (
    CPU,
    B,
    T,
    loss_of,
    make_agent_and_network,
    unrolls_for,
)
from tests.learner.builders import (
    NETWORKS,
    NUM_ACTIONS,
    random_rows,
    seeded,
    with_random_weights,
)

# Slots of environments that all explore in the same way.
SLOTS = torch.arange(B)


def without_starts(unrolls: Unrolls) -> Unrolls:
    """Returns the unrolls with no first row, so that every step is valid."""
    rows = unrolls.steps.rows._replace(is_first=torch.zeros_like(unrolls.steps.rows.is_first))
    return unrolls._replace(steps=unrolls.steps._replace(rows=rows))


def test_statistics_follow_the_batch() -> None:
    """Torsos that keep a running mean take it over the first row of the unrolls."""
    config = NetworkConfig(torso="small_conv", frame_stack=3, center_images=True)
    agent, network = make_agent_and_network(config)
    unrolls = unrolls_for(agent)
    agent.update_statistics(network, unrolls)
    buffers = dict(network.named_buffers())
    (name,) = (name for name in buffers if name.endswith("mean"))
    expected = unrolls.steps.rows.observations[0][0].float().mean(0)
    torch.testing.assert_close(buffers[name][0], expected)


@pytest.mark.parametrize("name", NETWORKS)
def test_log_ratios_vanish_for_the_weights_that_acted(name: str) -> None:
    """Acting row by row equals one unroll for the weights that acted, and for no others."""
    agent, network = make_agent_and_network(NETWORKS[name])
    unrolls, generator = unrolls_for(agent), seeded(3)
    state, outputs, actions = agent.initial_state(B, CPU), [], []
    for t in range(T + 1):
        row = map_tensors(lambda x, t=t: x[t : t + 1], unrolls.steps.rows)
        acted = agent.act(network, ActInput(row, state, SLOTS), generator)
        state = acted.state
        outputs.append(acted.policy_outputs["logits"])
        actions.append(acted.actions)
    steps = unrolls.steps._replace(
        actions=torch.stack(actions), policy_outputs={"logits": torch.stack(outputs)}
    )
    unrolls = unrolls._replace(steps=steps)
    ratios = agent.log_ratios(network, unrolls)
    assert ratios.shape == (T + 1, B)
    assert ratios.abs().max() < 1e-5
    other = with_random_weights(agent.build_network(), rng_seed=1)
    assert agent.log_ratios(other, unrolls).abs().max() > 0.1
    # On policy every importance weight is 1.
    rho = loss_of(agent, network, unrolls).metrics["policy/log_rho_mean"]
    assert rho.item() == pytest.approx(0, abs=1e-5)


def test_greedy_environments_take_the_likeliest_action_and_others_sample() -> None:
    """Both are in one batch, and a greedy row does not change the draw of another row."""
    agent, network = make_agent_and_network()
    num_envs = 400
    rows = random_rows(agent.spec, 1, num_envs, seeded(4))
    greedy = torch.arange(num_envs) % 2 == 0
    mixed, sampled = (
        agent.act(network, ActInput(rows, {}, SLOTS, greedy=mask), seeded(5))
        for mask in (greedy, None)
    )
    assert mixed.actions.dtype == torch.int64
    likeliest = mixed.policy_outputs["logits"].argmax(-1)
    assert torch.equal(mixed.actions[greedy], likeliest[greedy])
    assert torch.equal(mixed.actions[~greedy], sampled.actions[~greedy])
    assert not torch.equal(sampled.actions[greedy], likeliest[greedy])


def test_actions_are_drawn_from_the_policy() -> None:
    """Actions come with the frequencies that the recorded logits give."""
    agent, network = make_agent_and_network()
    rows = random_rows(agent.spec, 1, 1, seeded(6))
    rows = map_tensors(lambda x: x.expand(-1, 20_000, *x.shape[2:]), rows)
    output = agent.act(network, ActInput(rows, {}, SLOTS), seeded(7))
    frequencies = torch.bincount(output.actions, minlength=NUM_ACTIONS) / 20_000
    probabilities = torch.softmax(output.policy_outputs["logits"][0], -1)
    torch.testing.assert_close(frequencies, probabilities, atol=0.015, rtol=0)


def test_network_sees_scaled_and_clipped_rewards() -> None:
    """Acting and training both see them, since raw rewards could be of any size."""
    agent, network = make_agent_and_network(
        NetworkConfig(hidden_sizes=(16,), see_last_step=True),
        reward_scale=0.1,
        reward_clip_min=-1.0,
        reward_clip_max=2.0,
    )
    unrolls = without_starts(unrolls_for(agent))

    def logits(reward: float) -> Tensor:
        rows = unrolls.steps.rows._replace(rewards=torch.full((T + 1, B), reward))
        row = map_tensors(lambda x: x[:1], rows)
        acted = agent.act(network, ActInput(row, {}, SLOTS), seeded())
        seen = row._replace(rewards=torch.full((1, B), min(max(0.1 * reward, -1.0), 2.0)))
        torch.testing.assert_close(acted.policy_outputs["logits"], network(seen, {})[0].logits[0])
        recorded = {"logits": acted.policy_outputs["logits"].expand(T + 1, B, NUM_ACTIONS)}
        steps = unrolls.steps._replace(rows=rows, policy_outputs=recorded)
        trained = agent.log_ratios(network, unrolls._replace(steps=steps))
        assert trained[0].abs().max() < 1e-5
        return acted.policy_outputs["logits"]

    assert torch.equal(logits(20.0), logits(5000.0))
    assert torch.equal(logits(-10.0), logits(-5000.0))
    assert not torch.equal(logits(3.0), logits(4.0))


def test_image_and_vector_together_are_learned_from() -> None:
    """With a Dict observation the gradient of the loss reaches the torso of each leaf."""
    agent, network = make_agent_and_network(NETWORKS["everything"])
    assert isinstance(network.core, TorsoCore) and len(network.core.torsos) == 2
    loss_of(agent, network, unrolls_for(agent)).loss.backward()
    for torso in network.core.torsos:
        assert all(p.grad is not None and p.grad.any() for p in torso.parameters())


def test_initial_state_is_the_networks() -> None:
    """The agent builds the network's initial state without the weights."""
    agent, network = make_agent_and_network(NETWORKS["everything"])
    state, expected = agent.initial_state(3, CPU), network.initial_state(3)
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], x) for name, x in expected.items())
