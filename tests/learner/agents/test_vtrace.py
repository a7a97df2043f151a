"""The V-trace agent: its whole loss against plain sums in float64, acting, and what masks do."""

import dataclasses
import math
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from learner.agents.base import LossOutput
from learner.agents.registry import make_agent
from learner.agents.vtrace import VTraceAgent, VTraceNetwork
from learner.records import Unrolls, map_tensors, select_unrolls
from seed.config import NetworkConfig, RunConfig, VTraceConfig
from seed.errors import SpecError
from seed.specs import ArraySpec
from tests.learner.builders import (
    NUM_ACTIONS,
    SCREEN,
    SPEED,
    env_spec,
    random_rows,
    random_unrolls,
    seeded,
    with_random_weights,
)

T, B = 6, 5
CPU = torch.device("cpu")

# Values on both sides of each clip.
CLIPPED: dict[str, Any] = {
    "rho_max": 0.9,
    "c_max": 0.8,
    "pg_rho_max": 1.1,
    "trace_lambda": 0.95,
    "reward_scale": 0.5,
    "reward_clip_min": -0.3,
    "reward_clip_max": 0.6,
    "value_cost": 0.7,
    "entropy_cost": 0.03,
    "discount_factor": 0.9,
}

# Slots of environments that all explore alike.
SLOTS = torch.arange(B)


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


def without_starts(unrolls: Unrolls) -> Unrolls:
    """Returns the unrolls with no first row: every step is valid."""
    rows = unrolls.rows._replace(is_first=torch.zeros_like(unrolls.rows.is_first))
    return unrolls._replace(rows=rows)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """The definition."""
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def literal_targets(
    config: VTraceConfig, unrolls: Unrolls, logits: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns value targets, advantages and mask [T, B]: the paper's sums, one by one."""
    rows, actions = unrolls.rows, unrolls.actions.numpy()
    behaviour = log_softmax(unrolls.policy_outputs["logits"].double().numpy())
    target = log_softmax(logits)
    targets, advantages = np.zeros((T + 1, B)), np.zeros((T, B))
    mask = np.zeros((T, B))
    for b in range(B):
        gammas, rewards, deltas, traces, rhos = [], [], [], [], []
        for t in range(T):
            mask[t, b] = 0 if rows.is_first[t + 1, b] else 1
            gammas.append(0 if rows.terminated[t + 1, b] else config.discount_factor)
            reward = rows.rewards[t + 1, b].item() * config.reward_scale
            rewards.append(min(max(reward, config.reward_clip_min), config.reward_clip_max))
            rho = math.exp(target[t, b, actions[t, b]] - behaviour[t, b, actions[t, b]])
            rhos.append(rho)
            td_error = rewards[t] + gammas[t] * values[t + 1, b] - values[t, b]
            deltas.append(mask[t, b] * min(config.rho_max, rho) * td_error)
            traces.append(mask[t, b] * config.trace_lambda * min(config.c_max, rho))
        targets[T, b] = values[T, b]
        for s in range(T):
            targets[s, b] = values[s, b]
            for t in range(s, T):
                product = math.prod(gammas[i] * traces[i] for i in range(s, t))
                targets[s, b] += product * deltas[t]
        for t in range(T):
            error = rewards[t] + gammas[t] * targets[t + 1, b] - values[t, b]
            advantages[t, b] = mask[t, b] * min(config.pg_rho_max, rhos[t]) * error
    return targets[:T], advantages, mask


def literal_loss(agent: VTraceAgent, network: nn.Module, unrolls: Unrolls) -> Tensor:
    """Returns the summed loss in float64, with its gradient."""
    config = agent.config
    seen = (unrolls.rows.rewards * config.reward_scale).clamp(
        config.reward_clip_min, config.reward_clip_max
    )
    output, _ = network(unrolls.rows._replace(rewards=seen), unrolls.initial_state)
    logits, values = output.logits.double(), output.values.double()
    targets, advantages, mask = literal_targets(
        config, unrolls, logits.detach().numpy(), values.detach().numpy()
    )
    log_probs = torch.log_softmax(logits, -1)
    loss = torch.zeros((), dtype=torch.float64)
    for t in range(T):
        for b in range(B):
            if mask[t, b]:
                chosen = log_probs[t, b, unrolls.actions[t, b]]
                entropy = -(log_probs[t, b].exp() * log_probs[t, b]).sum()
                error = targets[t, b] - values[t, b]
                loss = loss - chosen * advantages[t, b] - config.entropy_cost * entropy
                loss = loss + config.value_cost * 0.5 * error**2
    return loss


def loss_of(agent: VTraceAgent, network: nn.Module, unrolls: Unrolls) -> LossOutput:
    """Returns the loss of unrolls that are a whole batch."""
    return agent.loss(network, unrolls, agent.num_valid(unrolls))


def num_valid(unrolls: Unrolls) -> int:
    """Returns the number of steps that were taken."""
    return int((~unrolls.rows.is_first[1:]).sum())


def gradients(network: nn.Module, loss: Tensor) -> list[Tensor]:
    """Returns the gradient of every parameter."""
    return list(torch.autograd.grad(loss, list(network.parameters())))


NETWORKS = {
    "mlp": NetworkConfig(hidden_sizes=(16,)),
    "everything": NetworkConfig(
        torso="small_conv", hidden_sizes=(8,), lstm_size=6, frame_stack=3, see_last_step=True
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("config", [{}, CLIPPED], ids=["defaults", "clipped"])
def test_loss_and_gradient_equal_plain_sums(name: str, config: dict[str, Any]) -> None:
    """Rewards, masks, discounts, targets, advantages and all three terms, off policy."""
    agent, network = make_agent_and_network(NETWORKS[name], **config)
    for rng_seed in range(3):
        unrolls = unrolls_for(agent, rng_seed)
        loss = loss_of(agent, network, unrolls).loss
        expected = literal_loss(agent, network, unrolls)
        assert loss.item() == pytest.approx(expected.item(), rel=1e-4, abs=1e-4)
        for got, wanted in zip(gradients(network, loss), gradients(network, expected), strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4)


def test_mean_is_the_sum_over_the_number_of_valid_steps() -> None:
    """Loss and gradient alike; the terms reported are means either way."""
    outputs: list[LossOutput] = []
    grads = []
    for reduction in ("sum", "mean"):
        agent, network = make_agent_and_network(loss_reduction=reduction)
        unrolls = unrolls_for(agent)
        outputs.append(loss_of(agent, network, unrolls))
        grads.append(gradients(network, outputs[-1].loss))
    summed, mean = outputs
    count = num_valid(unrolls)
    assert count < T * B
    assert mean.loss.item() == pytest.approx(summed.loss.item() / count, rel=1e-5)
    for of_sum, of_mean in zip(*grads, strict=True):
        torch.testing.assert_close(of_mean * count, of_sum, rtol=1e-4, atol=1e-5)
    assert summed.metrics.keys() == mean.metrics.keys()
    for key in summed.metrics.keys() - {"loss/total"}:
        torch.testing.assert_close(summed.metrics[key], mean.metrics[key])


@pytest.mark.parametrize("entropy_target", [None, 0.9])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_parts_of_a_batch_add_up_to_it(reduction: str, entropy_target: float | None) -> None:
    """Loss, gradient, and what is reported: threads may share a batch."""
    agent, network = make_agent_and_network(
        NETWORKS["everything"], loss_reduction=reduction, entropy_target=entropy_target
    )
    unrolls = unrolls_for(agent)
    count = agent.num_valid(unrolls)
    assert count.item() == num_valid(unrolls)
    parts = [select_unrolls(unrolls, 0, 2), select_unrolls(unrolls, 2, B)]
    whole = agent.loss(network, unrolls, count)
    outputs = [agent.loss(network, part, count) for part in parts]
    torch.testing.assert_close(outputs[0].loss + outputs[1].loss, whole.loss)
    of_parts = [gradients(network, output.loss) for output in outputs]
    for a, b, wanted in zip(*of_parts, gradients(network, whole.loss), strict=True):
        torch.testing.assert_close(a + b, wanted, rtol=1e-4, atol=1e-5)
    for name, wanted in whole.metrics.items():
        got = outputs[0].metrics[name] + outputs[1].metrics[name]
        torch.testing.assert_close(got, wanted, msg=name)


def test_statistics_take_note_of_the_batch() -> None:
    """The mean over the first frames of its unrolls, for the torsos that keep one."""
    config = NetworkConfig(torso="small_conv", frame_stack=3, center_images=True)
    agent, network = make_agent_and_network(config)
    unrolls = unrolls_for(agent)
    agent.update_statistics(network, unrolls)
    buffers = dict(network.named_buffers())
    (name,) = (name for name in buffers if name.endswith("mean"))
    expected = unrolls.rows.observations[0][0].float().mean(0)
    torch.testing.assert_close(buffers[name][0], expected)


def test_terms_reported_add_up_to_the_loss() -> None:
    """Means over valid steps, unweighted; scalars without gradient."""
    agent, network = make_agent_and_network(**CLIPPED)
    unrolls = unrolls_for(agent)
    output = loss_of(agent, network, unrolls)
    metrics = {name: value.item() for name, value in output.metrics.items()}
    total = (
        metrics["loss/policy"]
        + 0.7 * metrics["loss/value"]
        - metrics["policy/entropy_cost"] * metrics["policy/entropy_mean"]
    )
    assert total * num_valid(unrolls) == pytest.approx(output.loss.item(), rel=1e-4)
    assert metrics["loss/total"] == output.loss.item()
    assert metrics["policy/entropy_cost"] == pytest.approx(0.03)
    assert 0 < metrics["policy/entropy_mean"] <= math.log(NUM_ACTIONS)
    assert not any(value.requires_grad or value.ndim for value in output.metrics.values())


def test_row_before_a_first_row_is_learned_from_only_as_bootstrap() -> None:
    """Its action and behaviour, and the reward of the reset, change nothing."""
    agent, network = make_agent_and_network()
    unrolls = unrolls_for(agent)
    expected = loss_of(agent, network, unrolls).loss
    reset = unrolls.rows.is_first[1:]
    rewards, actions = unrolls.rows.rewards.clone(), unrolls.actions.clone()
    logits = unrolls.policy_outputs["logits"].clone()
    rewards[1:][reset] = 99.0
    actions[:-1][reset] = (actions[:-1][reset] + 1) % NUM_ACTIONS
    logits[:-1][reset] = logits[:-1][reset].flip(-1)
    other = unrolls._replace(
        rows=unrolls.rows._replace(rewards=rewards),
        actions=actions,
        policy_outputs={"logits": logits},
    )
    assert loss_of(agent, network, other).loss.item() == pytest.approx(expected.item(), rel=1e-6)


def test_nothing_is_learned_from_the_last_action() -> None:
    """The last row only bootstraps; its action is row 0 of the next unroll."""
    agent, network = make_agent_and_network()
    unrolls = unrolls_for(agent)
    actions = unrolls.actions.clone()
    actions[-1] = (actions[-1] + 1) % NUM_ACTIONS
    other = unrolls._replace(actions=actions)
    assert torch.equal(loss_of(agent, network, other).loss, loss_of(agent, network, unrolls).loss)


@pytest.mark.parametrize("entropy_target", [None, 0.5])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_batch_without_a_valid_step_teaches_nothing(
    reduction: str, entropy_target: float | None
) -> None:
    """No NaN in the loss, in its gradient, or in what is reported."""
    agent, network = make_agent_and_network(loss_reduction=reduction, entropy_target=entropy_target)
    unrolls = unrolls_for(agent)
    rows = unrolls.rows._replace(is_first=torch.ones_like(unrolls.rows.is_first))
    output = loss_of(agent, network, unrolls._replace(rows=rows))
    assert output.loss.item() == 0
    assert all(not gradient.any() for gradient in gradients(network, output.loss))
    assert all(value.isfinite() for value in output.metrics.values())


@pytest.mark.parametrize(
    ("schedule", "expected"), [("constant", [0.02, 0.02, 0.02]), ("linear", [0.02, 0.005, 0.0])]
)
def test_entropy_cost_follows_its_schedule(
    schedule: Literal["constant", "linear"], expected: list[float]
) -> None:
    """At the start, at three quarters of the run, and at a batch that overshoots its end."""
    agent, network = make_agent_and_network(entropy_cost=0.02, entropy_cost_schedule=schedule)
    unrolls = unrolls_for(agent)
    outputs = [
        agent.loss(network, unrolls, agent.num_valid(unrolls), progress=progress)
        for progress in (0.0, 0.75, 1.1)
    ]
    costs = [output.metrics["policy/entropy_cost"].item() for output in outputs]
    assert costs == pytest.approx(expected)
    # It is what the loss weighs the entropy by.
    entropy = outputs[0].metrics["policy/entropy_mean"] * num_valid(unrolls)
    difference = (outputs[2].loss - outputs[0].loss).item()
    assert difference == pytest.approx((expected[0] - expected[2]) * entropy.item(), rel=1e-3)


def entropy_cost_after_an_update(entropy_target: float, reduction: str) -> tuple[float, float]:
    """Returns the cost before and after one small step of plain gradient descent."""
    agent, network = make_agent_and_network(
        entropy_target=entropy_target, entropy_cost=0.02, loss_reduction=reduction
    )
    unrolls = unrolls_for(agent)
    output = loss_of(agent, network, unrolls)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4)
    output.loss.backward()
    optimizer.step()
    after = loss_of(agent, network, unrolls).metrics
    return output.metrics["policy/entropy_cost"].item(), after["policy/entropy_cost"].item()


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize(("entropy_target", "direction"), [(10.0, 1), (0.01, -1)])
def test_entropy_cost_moves_towards_its_target(
    entropy_target: float, direction: int, reduction: str
) -> None:
    """Up while the policy has too little entropy, down while it has too much."""
    before, after = entropy_cost_after_an_update(entropy_target, reduction)
    assert before == pytest.approx(0.02)
    assert direction * (after - before) > 0


def test_entropy_target_changes_no_other_gradient() -> None:
    """The adaptive cost weighs the entropy as a constant would; theta alone moves it."""
    agent, network = make_agent_and_network(entropy_cost=0.02)
    adaptive, adaptive_network = make_agent_and_network(entropy_cost=0.02, entropy_target=0.7)
    missing, _ = adaptive_network.load_state_dict(network.state_dict(), strict=False)
    assert missing == ["entropy_theta"]
    unrolls = unrolls_for(agent)
    loss_of(agent, network, unrolls).loss.backward()
    loss_of(adaptive, adaptive_network, unrolls).loss.backward()
    for name, parameter in network.named_parameters():
        other = adaptive_network.get_parameter(name)
        assert parameter.grad is not None and other.grad is not None
        torch.testing.assert_close(other.grad, parameter.grad, rtol=1e-4, atol=1e-6)
    assert adaptive_network.entropy_theta is not None
    assert adaptive_network.entropy_theta.grad is not None


@pytest.mark.parametrize("name", NETWORKS)
def test_log_ratios_vanish_for_the_weights_that_acted(name: str) -> None:
    """Row by row with states carried, against one unroll; and not for other weights."""
    agent, network = make_agent_and_network(NETWORKS[name])
    unrolls, generator = unrolls_for(agent), seeded(3)
    state, outputs, actions = agent.initial_state(B, CPU), [], []
    for t in range(T + 1):
        row = map_tensors(lambda x, t=t: x[t : t + 1], unrolls.rows)
        acted = agent.act(network, row, state, slots=SLOTS, generator=generator)
        state = acted.state
        outputs.append(acted.policy_outputs["logits"])
        actions.append(acted.actions)
    unrolls = unrolls._replace(
        actions=torch.stack(actions), policy_outputs={"logits": torch.stack(outputs)}
    )
    ratios = agent.log_ratios(network, unrolls)
    assert ratios.shape == (T + 1, B)
    assert ratios.abs().max() < 1e-5
    other = with_random_weights(agent.build_network(), rng_seed=1)
    assert agent.log_ratios(other, unrolls).abs().max() > 0.1
    # On policy, every importance weight is 1.
    rho = loss_of(agent, network, unrolls).metrics["policy/log_rho_mean"]
    assert rho.item() == pytest.approx(0, abs=1e-5)


def test_greedy_environments_take_the_likeliest_action_and_others_sample() -> None:
    """In one batch; who is greedy changes nobody else's draw."""
    agent, network = make_agent_and_network()
    num_envs = 400
    rows = random_rows(agent.spec, 1, num_envs, seeded(4))
    greedy = torch.arange(num_envs) % 2 == 0
    mixed, sampled = (
        agent.act(network, rows, {}, slots=SLOTS, generator=seeded(5), greedy=mask)
        for mask in (greedy, None)
    )
    assert mixed.actions.dtype == torch.int64
    likeliest = mixed.policy_outputs["logits"].argmax(-1)
    assert torch.equal(mixed.actions[greedy], likeliest[greedy])
    assert torch.equal(mixed.actions[~greedy], sampled.actions[~greedy])
    assert not torch.equal(sampled.actions[greedy], likeliest[greedy])


def test_actions_are_drawn_from_the_policy() -> None:
    """With the frequencies that the recorded logits give."""
    agent, network = make_agent_and_network()
    rows = random_rows(agent.spec, 1, 1, seeded(6))
    rows = map_tensors(lambda x: x.expand(-1, 20_000, *x.shape[2:]), rows)
    output = agent.act(network, rows, {}, slots=SLOTS, generator=seeded(7))
    frequencies = torch.bincount(output.actions, minlength=NUM_ACTIONS) / 20_000
    probabilities = torch.softmax(output.policy_outputs["logits"][0], -1)
    torch.testing.assert_close(frequencies, probabilities, atol=0.015, rtol=0)


def test_network_sees_scaled_and_clipped_rewards() -> None:
    """Acting and training alike; the raw ones could be of any size."""
    agent, network = make_agent_and_network(
        NetworkConfig(hidden_sizes=(16,), see_last_step=True),
        reward_scale=0.1,
        reward_clip_min=-1.0,
        reward_clip_max=2.0,
    )
    unrolls = without_starts(unrolls_for(agent))

    def logits(reward: float) -> Tensor:
        rows = unrolls.rows._replace(rewards=torch.full((T + 1, B), reward))
        row = map_tensors(lambda x: x[:1], rows)
        acted = agent.act(network, row, {}, slots=SLOTS, generator=seeded())
        seen = row._replace(rewards=torch.full((1, B), min(max(0.1 * reward, -1.0), 2.0)))
        torch.testing.assert_close(acted.policy_outputs["logits"], network(seen, {})[0].logits[0])
        recorded = {"logits": acted.policy_outputs["logits"].expand(T + 1, B, NUM_ACTIONS)}
        trained = agent.log_ratios(network, unrolls._replace(rows=rows, policy_outputs=recorded))
        assert trained[0].abs().max() < 1e-5
        return acted.policy_outputs["logits"]

    assert torch.equal(logits(20.0), logits(5000.0))
    assert torch.equal(logits(-10.0), logits(-5000.0))
    assert not torch.equal(logits(3.0), logits(4.0))


def test_image_and_vector_together_are_learned_from() -> None:
    """A Dict observation: the gradient of the loss reaches the torso of each leaf."""
    agent, network = make_agent_and_network(NETWORKS["everything"])
    assert len(network.torsos) == 2
    loss_of(agent, network, unrolls_for(agent)).loss.backward()
    for torso in network.torsos:
        assert all(p.grad is not None and p.grad.any() for p in torso.parameters())


def test_initial_state_is_the_networks() -> None:
    """The agent builds it without the weights."""
    agent, network = make_agent_and_network(NETWORKS["everything"])
    state, expected = agent.initial_state(3, CPU), network.initial_state(3)
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], x) for name, x in expected.items())


def test_registry_makes_the_agent_of_the_config() -> None:
    """With its unroll length and batch size."""
    config = RunConfig(agent=VTraceConfig(unroll_length=3, batch_size=2))
    agent = make_agent(env_spec(), config)
    assert isinstance(agent, VTraceAgent)
    assert (agent.unroll_length, agent.batch_size) == (3, 2)


def test_registry_refuses_continuous_actions() -> None:
    """Naming the field."""
    action = ArraySpec(name="action", dtype="float32", shape=(2,))
    spec = dataclasses.replace(env_spec(), action=action)
    with pytest.raises(SpecError, match="^action: expected a discrete space, got float32 array"):
        make_agent(spec, RunConfig())
