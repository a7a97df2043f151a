"""The V-trace agent's loss against plain sums in float64, its entropy cost, and its masks."""

import math
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from learner.agents.base import LossOutput
from learner.agents.vtrace import VTraceAgent
from learner.config.agent_config import VTraceConfig
from learner.records import Batch, Unrolls, select_unrolls
from tests.learner.agents.vtrace_agents import B, T, loss_of, make_agent_and_network, unrolls_for
from tests.learner.builders import NETWORKS, NUM_ACTIONS

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


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Returns log softmax by its definition."""
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def literal_targets(
    config: VTraceConfig, unrolls: Unrolls, logits: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns value targets, advantages and mask [T, B]: the paper's sums, one by one."""
    rows, actions = unrolls.steps.rows, unrolls.steps.actions.numpy()
    behaviour = log_softmax(unrolls.steps.policy_outputs["logits"].double().numpy())
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
    seen = (unrolls.steps.rows.rewards * config.reward_scale).clamp(
        config.reward_clip_min, config.reward_clip_max
    )
    output, _ = network(unrolls.steps.rows._replace(rewards=seen), unrolls.initial_state)
    logits, values = output.logits.double(), output.values.double()
    targets, advantages, mask = literal_targets(
        config, unrolls, logits.detach().numpy(), values.detach().numpy()
    )
    log_probs = torch.log_softmax(logits, -1)
    loss = torch.zeros((), dtype=torch.float64)
    for t in range(T):
        for b in range(B):
            if mask[t, b]:
                chosen = log_probs[t, b, unrolls.steps.actions[t, b]]
                entropy = -(log_probs[t, b].exp() * log_probs[t, b]).sum()
                error = targets[t, b] - values[t, b]
                loss = loss - chosen * advantages[t, b] - config.entropy_cost * entropy
                loss = loss + config.value_cost * 0.5 * error**2
    return loss


def num_valid(unrolls: Unrolls) -> int:
    """Returns the number of steps that were taken."""
    return int((~unrolls.steps.rows.is_first[1:]).sum())


def gradients(network: nn.Module, loss: Tensor) -> list[Tensor]:
    """Returns the gradient of every parameter."""
    return list(torch.autograd.grad(loss, list(network.parameters())))


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("config", [{}, CLIPPED], ids=["defaults", "clipped"])
def test_loss_and_gradient_equal_plain_sums(name: str, config: dict[str, Any]) -> None:
    """Rewards, masks, discounts, targets, advantages and all three terms agree, off policy."""
    agent, network = make_agent_and_network(NETWORKS[name], **config)
    for rng_seed in range(3):
        unrolls = unrolls_for(agent, rng_seed)
        loss = loss_of(agent, network, unrolls).loss
        expected = literal_loss(agent, network, unrolls)
        assert loss.item() == pytest.approx(expected.item(), rel=1e-4, abs=1e-4)
        for got, wanted in zip(gradients(network, loss), gradients(network, expected), strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4)


def test_mean_is_the_sum_over_the_number_of_valid_steps() -> None:
    """This holds for loss and gradient; the reported terms are means in both cases."""
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
    """Loss, gradient and metrics add up, so threads may share a batch."""
    agent, network = make_agent_and_network(
        NETWORKS["everything"], loss_reduction=reduction, entropy_target=entropy_target
    )
    unrolls = unrolls_for(agent)
    count = agent.num_valid(unrolls)
    assert count.item() == num_valid(unrolls)
    parts = [Batch(select_unrolls(unrolls, start, stop)) for start, stop in ((0, 2), (2, B))]
    whole = agent.loss(network, Batch(unrolls), count, progress=0.0)
    outputs = [agent.loss(network, part, count, progress=0.0) for part in parts]
    torch.testing.assert_close(outputs[0].loss + outputs[1].loss, whole.loss)
    of_parts = [gradients(network, output.loss) for output in outputs]
    for a, b, wanted in zip(*of_parts, gradients(network, whole.loss), strict=True):
        torch.testing.assert_close(a + b, wanted, rtol=1e-4, atol=1e-5)
    for name, wanted in whole.metrics.items():
        got = outputs[0].metrics[name] + outputs[1].metrics[name]
        torch.testing.assert_close(got, wanted, msg=name)


def test_terms_reported_add_up_to_the_loss() -> None:
    """The terms are means over valid steps, unweighted, and scalars without gradient."""
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


def test_value_and_its_explained_variance_are_reported() -> None:
    """Of the valid steps alone: mean V, and 1 - Var[v - V] / Var[v] with the literal targets."""
    agent, network = make_agent_and_network(**CLIPPED)
    unrolls = unrolls_for(agent)
    loss = loss_of(agent, network, unrolls)
    seen = (unrolls.steps.rows.rewards * 0.5).clamp(-0.3, 0.6)
    output, _ = network(unrolls.steps.rows._replace(rewards=seen), unrolls.initial_state)
    logits, values = (x.detach().double().numpy() for x in (output.logits, output.values))
    targets, _, mask = literal_targets(agent.config, unrolls, logits, values)
    valid, predictions = targets[mask > 0], values[:-1][mask > 0]
    reported = agent.finish_metrics({name: x.item() for name, x in loss.metrics.items()})
    assert reported["value/mean"] == pytest.approx(predictions.mean(), rel=1e-4)
    expected = 1 - np.var(valid - predictions) / np.var(valid)
    assert reported["value/explained_variance"] == pytest.approx(expected, rel=1e-3)
    assert not any(name.startswith("moments/") for name in reported)


def test_row_before_a_first_row_is_learned_from_only_as_bootstrap() -> None:
    """The action and behaviour of that row, and the reward of the reset, change nothing."""
    agent, network = make_agent_and_network()
    unrolls = unrolls_for(agent)
    expected = loss_of(agent, network, unrolls).loss
    reset = unrolls.steps.rows.is_first[1:]
    rewards, actions = unrolls.steps.rows.rewards.clone(), unrolls.steps.actions.clone()
    logits = unrolls.steps.policy_outputs["logits"].clone()
    rewards[1:][reset] = 99.0
    actions[:-1][reset] = (actions[:-1][reset] + 1) % NUM_ACTIONS
    logits[:-1][reset] = logits[:-1][reset].flip(-1)
    steps = unrolls.steps._replace(
        rows=unrolls.steps.rows._replace(rewards=rewards),
        actions=actions,
        policy_outputs={"logits": logits},
    )
    other = unrolls._replace(steps=steps)
    assert loss_of(agent, network, other).loss.item() == pytest.approx(expected.item(), rel=1e-6)


def test_nothing_is_learned_from_the_last_action() -> None:
    """The last row only bootstraps; its action is in row 0 of the next unroll."""
    agent, network = make_agent_and_network()
    unrolls = unrolls_for(agent)
    actions = unrolls.steps.actions.clone()
    actions[-1] = (actions[-1] + 1) % NUM_ACTIONS
    other = unrolls._replace(steps=unrolls.steps._replace(actions=actions))
    assert torch.equal(loss_of(agent, network, other).loss, loss_of(agent, network, unrolls).loss)


@pytest.mark.parametrize("entropy_target", [None, 0.5])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_batch_without_a_valid_step_teaches_nothing(
    reduction: str, entropy_target: float | None
) -> None:
    """Loss, gradient and metrics hold no NaN."""
    agent, network = make_agent_and_network(loss_reduction=reduction, entropy_target=entropy_target)
    unrolls = unrolls_for(agent)
    rows = unrolls.steps.rows._replace(is_first=torch.ones_like(unrolls.steps.rows.is_first))
    output = loss_of(agent, network, unrolls._replace(steps=unrolls.steps._replace(rows=rows)))
    assert output.loss.item() == 0
    assert all(not gradient.any() for gradient in gradients(network, output.loss))
    assert all(value.isfinite() for value in output.metrics.values())


@pytest.mark.parametrize(
    ("schedule", "expected"), [("constant", [0.02, 0.02, 0.02]), ("linear", [0.02, 0.005, 0.0])]
)
def test_entropy_cost_follows_its_schedule(
    schedule: Literal["constant", "linear"], expected: list[float]
) -> None:
    """The cost is right at the start, at three quarters of the run, and beyond its end."""
    agent, network = make_agent_and_network(entropy_cost=0.02, entropy_cost_schedule=schedule)
    unrolls = unrolls_for(agent)
    outputs = [
        agent.loss(network, Batch(unrolls), agent.num_valid(unrolls), progress)
        for progress in (0.0, 0.75, 1.1)
    ]
    costs = [output.metrics["policy/entropy_cost"].item() for output in outputs]
    assert costs == pytest.approx(expected)
    # The reported cost is the weight of the entropy in the loss.
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
    """The cost rises while the policy has too little entropy, and falls while it has too much."""
    before, after = entropy_cost_after_an_update(entropy_target, reduction)
    assert before == pytest.approx(0.02)
    assert direction * (after - before) > 0


def test_entropy_target_changes_no_other_gradient() -> None:
    """The adaptive cost weighs the entropy as a constant does, and only theta moves the cost."""
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
