"""The R2D2 agent: its loss against plain sums in float64, its acting, and its target network."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from learner.agents.base import ActInput, LossOutput
from learner.agents.r2d2 import R2D2Agent, R2D2Network
from learner.algos.value_rescaling import inverse_rescale, rescale
from learner.config.agent_config import R2D2Config
from learner.config.run_config import NetworkConfig
from learner.records import Batch, Rows, Unrolls, map_tensors, select_unrolls
from tests.learner.builders import (
    NETWORKS,
    NUM_ACTIONS,
    SCREEN,
    SPEED,
    env_spec,
    random_rows,
    random_unrolls,
    seeded,
    with_random_weights,
)

BURN_IN, L, B = 3, 6, 5
NUM_ROWS = BURN_IN + L + 1
CPU = torch.device("cpu")

WEIGHTS = torch.tensor([1.0, 0.25, 0.5, 0.75, 0.125])


def make_agent_and_network(name: str = "mlp", **config: Any) -> tuple[R2D2Agent, R2D2Network]:
    """Returns an agent, and weights for it whose target network differs from the online one."""
    settings = {
        "sequence_length": L,
        "burn_in": BURN_IN,
        "batch_size": B,
        "n_step": 3,
        "discount_factor": 0.9,
        "reward_scale": 2.0,
        "rescale_epsilon": 1e-2,
        "priority_mix": 0.8,
        "head_size": 7,
    }
    spec = env_spec(SCREEN, SPEED) if name == "everything" else env_spec(SPEED)
    agent = R2D2Agent(spec, NETWORKS[name], R2D2Config(**settings | config))
    return agent, with_random_weights(agent.build_network())


def sequences_for(agent: R2D2Agent, rng_seed: int = 1) -> Unrolls:
    """Returns replayed sequences with every combination of flags, from a state that is not zero."""
    generator = seeded(rng_seed)
    state = agent.initial_state(B, CPU)
    for name in state.keys() & {"lstm/hidden", "lstm/cell"}:
        state[name] = torch.randn(state[name].shape, generator=generator)
    unrolls = random_unrolls(agent.spec, NUM_ROWS, B, state, generator)
    recorded = torch.randn((NUM_ROWS, B, NUM_ACTIONS), generator=generator)
    return unrolls._replace(steps=unrolls.steps._replace(policy_outputs={"q": recorded}))


def loss_of(
    agent: R2D2Agent, network: nn.Module, unrolls: Unrolls, weights: Tensor | None = None
) -> LossOutput:
    """Returns the loss of sequences that are a whole batch, with weights of 1 unless given."""
    return agent.loss(network, Batch(unrolls, weights), agent.num_valid(unrolls), progress=0.0)


def as_seen(agent: R2D2Agent, unrolls: Unrolls) -> Rows:
    """Returns all rows with the rewards that networks see."""
    scaled = agent.config.reward_scale * unrolls.steps.rows.rewards
    return unrolls.steps.rows._replace(rewards=rescale(scaled, agent.config.rescale_epsilon))


def one_long_unroll(agent: R2D2Agent, network: nn.Module, unrolls: Unrolls) -> Tensor:
    """Returns Q of the trained rows, float64 [L + 1, B, A]: all rows in one forward."""
    q_values, _ = network(as_seen(agent, unrolls), unrolls.initial_state)
    return q_values.double()[BURN_IN:]


def two_unrolls(agent: R2D2Agent, network: nn.Module, unrolls: Unrolls) -> Tensor:
    """Returns the same, with gradient through the trained rows alone."""
    rows = as_seen(agent, unrolls)
    burn_in, trained = (
        map_tensors(lambda x, part=part: x[part], rows)
        for part in (slice(0, BURN_IN), slice(BURN_IN, None))
    )
    _, state = network(burn_in, unrolls.initial_state)
    q_values, _ = network(trained, {name: x.detach() for name, x in state.items()})
    return q_values.double()


def without_starts(unrolls: Unrolls) -> Unrolls:
    """Returns the sequences with no first row: every step is valid, and every state is kept."""
    rows = unrolls.steps.rows._replace(is_first=torch.zeros_like(unrolls.steps.rows.is_first))
    return unrolls._replace(steps=unrolls.steps._replace(rows=rows))


def literal_target(
    agent: R2D2Agent, unrolls: Unrolls, online: Tensor, target: Tensor, t: int, b: int
) -> Tensor:
    """Returns h(G_t) of trained row t by the specification's sum, float64."""
    config = agent.config
    rows = map_tensors(lambda x: x[BURN_IN:, b], unrolls.steps.rows)

    def bootstrap(row: int) -> float:
        value = target[row, b, online[row, b].argmax()]
        return inverse_rescale(value, config.rescale_epsilon).item()

    total = 0.0
    for i in range(1, config.n_step + 1):
        reward = config.reward_scale * rows.rewards[t + i].item()
        total += config.discount_factor ** (i - 1) * reward
        if rows.terminated[t + i]:
            break
        if i == config.n_step or t + i == L or rows.is_first[t + i + 1]:
            total += config.discount_factor**i * bootstrap(t + i)
            break
    return rescale(torch.tensor(total, dtype=torch.float64), config.rescale_epsilon)


def literal_td_errors(
    agent: R2D2Agent, unrolls: Unrolls, online: Tensor, target: Tensor
) -> list[list[Tensor]]:
    """Returns delta of each sequence's valid steps, with gradient into `online`."""
    errors: list[list[Tensor]] = [[] for _ in range(B)]
    for b in range(B):
        for t in range(L):
            if unrolls.steps.rows.is_first[BURN_IN + t + 1, b]:
                continue
            chosen = online[t, b, unrolls.steps.actions[BURN_IN + t, b]]
            errors[b].append(literal_target(agent, unrolls, online, target, t, b) - chosen)
    return errors


def gradients(network: R2D2Network, loss: Tensor) -> list[Tensor]:
    """Returns the gradient of every trained parameter."""
    return list(torch.autograd.grad(loss, list(network.online.parameters())))


@pytest.mark.parametrize("rng_seed", range(3))
@pytest.mark.parametrize("name", NETWORKS)
def test_loss_and_priorities_equal_plain_sums_over_one_long_unroll(
    name: str, rng_seed: int
) -> None:
    """Burn-in, masks, both networks, n-step targets, importance weights, across ends."""
    agent, network = make_agent_and_network(name)
    unrolls = sequences_for(agent, rng_seed)
    output = loss_of(agent, network, unrolls, WEIGHTS)
    online, target = (one_long_unroll(agent, x, unrolls) for x in (network.online, network.target))
    errors = literal_td_errors(agent, unrolls, online, target)
    losses = [0.5 * sum(error.item() ** 2 for error in sequence) for sequence in errors]
    expected = sum(w * x for w, x in zip(WEIGHTS.tolist(), losses, strict=True)) / B
    assert output.loss.item() == pytest.approx(expected, rel=1e-4)
    assert output.priorities is not None and not output.priorities.requires_grad
    for priority, sequence in zip(output.priorities.tolist(), errors, strict=True):
        sizes = [abs(error.item()) for error in sequence]
        mixed = 0.8 * max(sizes) + 0.2 * sum(sizes) / len(sizes)
        assert priority == pytest.approx(mixed, rel=1e-4)


@pytest.mark.parametrize("name", NETWORKS)
def test_gradient_equals_that_of_plain_sums_through_the_trained_rows_alone(name: str) -> None:
    """The gradient flows through the online Q of the actions taken, and not through the targets."""
    agent, network = make_agent_and_network(name)
    unrolls = sequences_for(agent)
    online, target = (two_unrolls(agent, x, unrolls) for x in (network.online, network.target))
    errors = literal_td_errors(agent, unrolls, online, target)
    expected = torch.stack([0.5 * error**2 for sequence in errors for error in sequence]).sum() / B
    got = loss_of(agent, network, unrolls).loss
    for a, b in zip(gradients(network, got), gradients(network, expected), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


def test_burn_in_warms_the_state_but_takes_no_gradient() -> None:
    """The loss depends on the burn-in rows, and no gradient flows through them."""
    agent, network = make_agent_and_network("everything")
    unrolls = without_starts(sequences_for(agent))
    hidden = unrolls.initial_state["lstm/hidden"].requires_grad_()
    output = loss_of(agent, network, unrolls)
    output.loss.backward()
    assert hidden.grad is None
    other = unrolls._replace(initial_state=unrolls.initial_state | {"lstm/hidden": hidden + 1})
    assert loss_of(agent, network, other).loss.item() != output.loss.item()


def test_sequence_without_burn_in_starts_from_its_stored_state() -> None:
    """Every row is trained, and the gradient reaches the stored state."""
    agent, network = make_agent_and_network("everything", burn_in=0, sequence_length=NUM_ROWS - 1)
    unrolls = without_starts(sequences_for(agent))
    hidden = unrolls.initial_state["lstm/hidden"].requires_grad_()
    loss_of(agent, network, unrolls).loss.backward()
    assert hidden.grad is not None and hidden.grad.any(-1).all()


def test_parts_of_a_batch_add_up_to_it() -> None:
    """Loss, gradient, metrics and priorities add up, so threads may share a batch."""
    agent, network = make_agent_and_network("everything")
    unrolls = sequences_for(agent)
    count = agent.num_valid(unrolls)
    assert count.dtype == torch.float32
    assert count.item() == B
    whole = agent.loss(network, Batch(unrolls, WEIGHTS), count, progress=0.0)
    parts = [
        Batch(select_unrolls(unrolls, start, stop), WEIGHTS[start:stop])
        for start, stop in ((0, 2), (2, B))
    ]
    outputs = [agent.loss(network, part, count, progress=0.0) for part in parts]
    torch.testing.assert_close(outputs[0].loss + outputs[1].loss, whole.loss)
    of_parts = [gradients(network, output.loss) for output in outputs]
    for a, b, wanted in zip(*of_parts, gradients(network, whole.loss), strict=True):
        torch.testing.assert_close(a + b, wanted, rtol=1e-4, atol=1e-5)
    for name, wanted in whole.metrics.items():
        got = outputs[0].metrics[name] + outputs[1].metrics[name]
        torch.testing.assert_close(got, wanted, msg=name)
    priorities = [x.priorities for x in outputs if x.priorities is not None]
    assert whole.priorities is not None
    torch.testing.assert_close(torch.cat(priorities), whole.priorities)


def test_metrics_are_means_over_the_valid_steps_of_each_sequence() -> None:
    """Metrics are scalars without gradient, and ignore importance weights."""
    agent, network = make_agent_and_network()
    unrolls = sequences_for(agent)
    output = loss_of(agent, network, unrolls, WEIGHTS)
    online, target = (one_long_unroll(agent, x, unrolls) for x in (network.online, network.target))
    errors = literal_td_errors(agent, unrolls, online, target)
    valid = ~unrolls.steps.rows.is_first[BURN_IN + 1 :]
    actions = unrolls.steps.actions[BURN_IN:-1].unsqueeze(-1)
    taken = online[:-1].gather(-1, actions).squeeze(-1)
    assert output.priorities is not None
    expected = {
        "loss/total": output.loss.item(),
        "loss/td_error_mean": sum(sum(abs(x.item()) for x in s) / len(s) for s in errors) / B,
        "loss/priority_mean": output.priorities.mean().item(),
        "policy/q_mean": ((taken * valid).sum(0) / valid.sum(0)).mean().item(),
        "policy/q_max": ((online[:-1].amax(-1) * valid).sum(0) / valid.sum(0)).mean().item(),
    }
    best = inverse_rescale(online[:-1].amax(-1), agent.config.rescale_epsilon)
    expected["value/mean"] = ((best * valid).sum(0) / valid.sum(0)).mean().item()
    flat = torch.tensor([x.item() for s in errors for x in s])
    explained = 1 - flat.var() / (taken.T[valid.T] + flat).var()
    expected["value/explained_variance"] = explained.item()
    reported = agent.finish_metrics({k: v.item() for k, v in output.metrics.items()})
    assert reported == pytest.approx(expected, rel=1e-3)
    assert not any(value.requires_grad or value.ndim for value in output.metrics.values())


def test_batch_without_a_valid_step_teaches_nothing() -> None:
    """Loss, gradient and metrics hold no NaN, and the sequences are never sampled again."""
    agent, network = make_agent_and_network()
    unrolls = sequences_for(agent)
    rows = unrolls.steps.rows._replace(is_first=torch.ones_like(unrolls.steps.rows.is_first))
    output = loss_of(agent, network, unrolls._replace(steps=unrolls.steps._replace(rows=rows)))
    assert output.loss.item() == 0
    assert all(not gradient.any() for gradient in gradients(network, output.loss))
    assert all(value.isfinite() for value in output.metrics.values())
    assert output.priorities is not None and not output.priorities.any()


def test_optimiser_does_not_touch_the_target_network() -> None:
    """No gradient reaches the target network, and every online parameter moves."""
    agent, network = make_agent_and_network("everything")
    before = {name: x.clone() for name, x in network.state_dict().items()}
    optimizer = torch.optim.Adam([p for p in network.parameters() if p.requires_grad], lr=0.1)
    loss_of(agent, network, sequences_for(agent)).loss.backward()
    optimizer.step()
    assert all(parameter.grad is None for parameter in network.target.parameters())
    assert not any(parameter.requires_grad for parameter in network.target.parameters())
    for name, x in network.state_dict().items():
        assert torch.equal(x, before[name]) == name.startswith("target."), name


def is_copied(network: R2D2Network) -> bool:
    """Tells whether the target network equals the online one."""
    online, target = network.online.state_dict(), network.target.state_dict()
    return all(torch.equal(target[name], x) for name, x in online.items())


def test_target_network_is_copied_every_so_many_updates() -> None:
    """The copy holds weights and running means, and is written in place, as replicas share it."""
    config = NetworkConfig(torso="small_conv", center_images=True)
    settings = R2D2Config(burn_in=BURN_IN, sequence_length=L, target_update_every=4)
    agent = R2D2Agent(env_spec(SCREEN), config, settings)
    network = agent.build_network()
    assert is_copied(network), "to start with"
    unrolls = sequences_for(agent)
    agent.update_statistics(network, unrolls)
    mean = network.online.state_dict()["core.torsos.0.image.center.mean"][0]
    torch.testing.assert_close(mean, unrolls.steps.rows.observations[0][0].float().mean(0))
    with_random_weights(network.online)
    where = [x.data_ptr() for x in network.target.state_dict().values()]
    for learner_step in (1, 2, 3, 5):
        agent.after_update(network, learner_step)
        assert not is_copied(network)
    agent.after_update(network, 8)
    assert is_copied(network)
    assert [x.data_ptr() for x in network.target.state_dict().values()] == where
    with_random_weights(network.online, rng_seed=1)
    assert not is_copied(network), "they share no memory"


def acted_sequences(agent: R2D2Agent, acting: nn.Module) -> Unrolls:
    """Returns sequences that `acting` acted row by row, with the state carried along."""
    unrolls, generator = sequences_for(agent), seeded(3)
    state, q_values, actions = unrolls.initial_state, [], []
    for t in range(NUM_ROWS):
        row = map_tensors(lambda x, t=t: x[t : t + 1], unrolls.steps.rows)
        acted = agent.act(acting, ActInput(row, state, slots=torch.arange(B)), generator)
        state = acted.state
        q_values.append(acted.policy_outputs["q"])
        actions.append(acted.actions)
    q_recorded = torch.stack(q_values).detach()
    assert q_recorded.dtype == torch.float32
    steps = unrolls.steps._replace(actions=torch.stack(actions), policy_outputs={"q": q_recorded})
    return unrolls._replace(steps=steps)


@pytest.mark.parametrize("name", NETWORKS)
def test_log_ratios_vanish_for_the_weights_that_acted(name: str) -> None:
    """Acting row by row equals one unroll for the weights that acted, and for no others."""
    agent, network = make_agent_and_network(name)
    acting = agent.acting_part(network)
    unrolls = acted_sequences(agent, acting)
    assert unrolls.steps.rows.is_first.any()
    ratios = agent.log_ratios(acting, unrolls)
    assert ratios.shape == (NUM_ROWS, B)
    assert ratios.abs().max() < 1e-5
    other = with_random_weights(agent.build_network(), rng_seed=1)
    assert agent.log_ratios(agent.acting_part(other), unrolls).abs().max() > 0.1
    other.online.load_state_dict(network.online.state_dict())
    of_other = agent.log_ratios(agent.acting_part(other), unrolls)
    assert torch.equal(of_other, ratios), "the target network acted"


@pytest.mark.parametrize("name", NETWORKS)
def test_first_priorities_are_those_of_the_loss_for_weights_that_acted(name: str) -> None:
    """The recorded outputs are enough: no observations, no state, no network."""
    agent, network = make_agent_and_network(name)
    network.update_target()
    unrolls = acted_sequences(agent, agent.acting_part(network))
    rows = unrolls.steps.rows._replace(observations=())
    blind = Unrolls(unrolls.steps._replace(rows=rows), initial_state={})
    got = agent.initial_priorities(blind)
    assert got.dtype == torch.float32
    expected = loss_of(agent, network, unrolls).priorities
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_greedy_environments_take_the_best_action_and_others_explore() -> None:
    """Both are in one batch, and a greedy row does not change the draw of another row."""
    agent, network = make_agent_and_network(eval_epsilon=0.0)
    num_envs = 400
    rows, slots = random_rows(agent.spec, 1, num_envs, seeded(4)), torch.arange(num_envs)
    greedy = slots % 2 == 0
    mixed, exploring = (
        agent.act(network.online, ActInput(rows, {}, slots, greedy=mask), seeded(5))
        for mask in (greedy, None)
    )
    assert mixed.actions.dtype == torch.int64
    best = mixed.policy_outputs["q"].argmax(-1)
    assert torch.equal(mixed.actions[greedy], best[greedy])
    assert torch.equal(mixed.actions[~greedy], exploring.actions[~greedy])
    assert not torch.equal(exploring.actions[greedy], best[greedy])


def test_environment_explores_as_its_slot_or_evaluation_says() -> None:
    """Slot 0 with the base, slot 1 with base^(1 + exponent / 2), slot 2 is greedy."""
    agent, network = make_agent_and_network(
        exploration_base=0.8, exploration_exponent=2.0, eval_epsilon=0.3
    )
    num_rows = 12_000
    rows = random_rows(agent.spec, 1, num_rows, seeded(8))
    slots = torch.arange(num_rows) % 3
    acted = agent.act(network.online, ActInput(rows, {}, slots, greedy=slots == 2), seeded(9))
    best = acted.policy_outputs["q"].argmax(-1)
    for slot, epsilon in enumerate((0.8, 0.8**2, 0.3)):
        strayed = (acted.actions != best)[slots == slot].float().mean().item()
        assert strayed == pytest.approx(epsilon * (1 - 1 / NUM_ACTIONS), abs=0.025)


def test_network_sees_rewards_of_any_size_rescaled_and_none_clipped() -> None:
    """Acting and training both see h(reward_scale * r)."""
    agent, network = make_agent_and_network("everything", reward_scale=0.1, rescale_epsilon=1e-3)
    rows = random_rows(agent.spec, 1, B, seeded(10), is_first=torch.zeros(1, B, dtype=torch.bool))
    state = agent.initial_state(B, CPU)

    def acted(reward: float) -> Tensor:
        raw = rows._replace(rewards=torch.full((1, B), reward))
        inputs = ActInput(raw, state, slots=torch.arange(B))
        output = agent.act(network.online, inputs, seeded())
        seen = rows._replace(rewards=rescale(0.1 * raw.rewards, 1e-3))
        torch.testing.assert_close(output.policy_outputs["q"], network.online(seen, state)[0][0])
        return output.policy_outputs["q"]

    assert not torch.equal(acted(20.0), acted(5000.0))


def test_agent_has_the_sizes_of_its_config() -> None:
    """Its unrolls have the length of the sequence period, and replay joins them to sequences."""
    spec, network = env_spec(), NetworkConfig(frame_stack=2, lstm_size=3)
    agent = R2D2Agent(spec, network, R2D2Config(sequence_period=40, batch_size=7))
    assert (agent.unroll_length, agent.batch_size) == (40, 7)
    assert R2D2Agent(spec, network, R2D2Config()).unroll_length == 80
    state, expected = agent.initial_state(3, CPU), agent.build_network().online.initial_state(3)
    assert state.keys() == expected.keys() == {"frames/observation", "lstm/hidden", "lstm/cell"}
    assert all(torch.equal(state[name], x) for name, x in expected.items())
