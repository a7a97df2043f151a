"""Policy and value: acting step by step and training on unrolls compute the same function."""

import dataclasses

import pytest
import torch
from torch import Tensor

from learner.config.run_config import NetworkConfig
from learner.networks.actor_critic import ActorCritic
from learner.records import Rows, State, map_tensors
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

CONFIGS = [
    NetworkConfig(hidden_sizes=(8,), lstm_size=lstm, frame_stack=stack, see_last_step=last)
    for lstm in (0, 5)
    for stack in (1, 3)
    for last in (False, True)
]


def name_of(config: NetworkConfig) -> str:
    """Returns the id of a parametrised test."""
    last = "-last_step" if config.see_last_step else ""
    return f"lstm{config.lstm_size}-stack{config.frame_stack}{last}"


def make_network(config: NetworkConfig) -> ActorCritic:
    """Returns a network whose weights are the same each time."""
    return with_random_weights(ActorCritic(SPEC, config))


def random_state(network: ActorCritic, generator: torch.Generator) -> State:
    """Returns a state that is not zero, with the dtypes of the initial one."""
    initial = network.initial_state(B)
    rows = random_rows(SPEC, 1, B, generator)
    state: State = {}
    for name, x in initial.items():
        if x.dtype == torch.float32:
            state[name] = torch.randn(x.shape, generator=generator)
        else:
            leaf = name.removeprefix("frames/")
            index = [each.name for each in SPEC.observations].index(leaf)
            state[name] = rows.observations[index][0].unsqueeze(1).expand(x.shape).clone()
    return state


def row(rows: Rows, t: int) -> Rows:
    """Returns row t, with T = 1."""
    return map_tensors(lambda x: x[t : t + 1], rows)


@pytest.mark.parametrize("config", CONFIGS, ids=name_of)
def test_step_by_step_equals_unrolled(config: NetworkConfig) -> None:
    """Logits, values and the last state are equal, over random episode starts."""
    network, generator = make_network(config), seeded(1)
    state = random_state(network, generator)
    rows = random_rows(SPEC, T, B, generator)
    unrolled, expected_state = network(rows, state)
    assert unrolled.logits.shape == (T, B, NUM_ACTIONS)
    assert unrolled.values.shape == (T, B)
    for t in range(T):
        output, state = network(row(rows, t), state)
        torch.testing.assert_close(output.logits, unrolled.logits[t : t + 1])
        torch.testing.assert_close(output.values, unrolled.values[t : t + 1])
    assert state.keys() == expected_state.keys() == network.initial_state(B).keys()
    for name, x in state.items():
        torch.testing.assert_close(x, expected_state[name])


@pytest.mark.parametrize("config", CONFIGS, ids=name_of)
def test_environments_do_not_see_each_other(config: NetworkConfig) -> None:
    """An environment alone gives what it gives in a batch, so batches may be mixed freely."""
    network, generator = make_network(config), seeded(2)
    state = random_state(network, generator)
    rows = random_rows(SPEC, T, B, generator)
    batch, _ = network(rows, state)
    alone, _ = network(
        map_tensors(lambda x: x[:, 2:3], rows), {name: x[2:3] for name, x in state.items()}
    )
    torch.testing.assert_close(alone.logits, batch.logits[:, 2:3])
    torch.testing.assert_close(alone.values, batch.values[:, 2:3])


@pytest.mark.parametrize("config", CONFIGS, ids=name_of)
def test_first_row_depends_on_its_observation_alone(config: NetworkConfig) -> None:
    """State, previous action and reward belong to another episode, or to another actor."""
    network, generator = make_network(config), seeded(3)
    is_first = torch.ones(1, B, dtype=torch.bool)
    rows = random_rows(SPEC, 1, B, generator, is_first=is_first)
    fresh = rows._replace(
        rewards=torch.zeros(1, B), previous_actions=torch.zeros(1, B, dtype=torch.int64)
    )
    got, _ = network(rows, random_state(network, generator))
    expected, _ = network(fresh, network.initial_state(B))
    assert torch.equal(got.logits, expected.logits)
    assert torch.equal(got.values, expected.values)


def changed(network: ActorCritic, rows: Rows, other: Rows) -> Tensor:
    """Returns bool [T, B], true where the two give different logits."""
    state = network.initial_state(B)
    return (network(rows, state)[0].logits != network(other, state)[0].logits).any(-1)


@pytest.mark.parametrize("see_last_step", [True, False])
def test_last_step_is_seen_where_asked_for(see_last_step: bool) -> None:
    """The network sees previous action and reward at every row but the first of an episode."""
    network = make_network(NetworkConfig(hidden_sizes=(8,), see_last_step=see_last_step))
    rows = random_rows(SPEC, T, B, seeded(4))
    wanted = ~rows.is_first & see_last_step
    actions = (rows.previous_actions + 1) % NUM_ACTIONS
    assert torch.equal(changed(network, rows, rows._replace(previous_actions=actions)), wanted)
    rewards = rows.rewards + 1
    assert torch.equal(changed(network, rows, rows._replace(rewards=rewards)), wanted)


def test_every_leaf_is_seen() -> None:
    """The network reads images, vectors and discrete values side by side."""
    network, generator = make_network(NetworkConfig(hidden_sizes=(8,))), seeded(5)
    rows, other = (random_rows(SPEC, T, B, generator) for _ in range(2))
    for index in range(len(SPEC.observations)):
        leaves = list(rows.observations)
        leaves[index] = other.observations[index]
        different = changed(network, rows, rows._replace(observations=tuple(leaves)))
        # Some discrete values are equal by chance.
        assert different.float().mean() > 0.5, SPEC.observations[index].name


def test_initial_state_names_what_is_carried() -> None:
    """The state holds zeros of the right shape and dtype; without memory it is empty."""
    network = make_network(NetworkConfig(lstm_size=5, frame_stack=3))
    state = network.initial_state(7)
    assert {name: (x.dtype, tuple(x.shape)) for name, x in state.items()} == {
        "frames/screen": (torch.uint8, (7, 2, 5, 6)),
        "frames/body/speed": (torch.float32, (7, 2, 3)),
        "frames/body/gear": (torch.int64, (7, 2)),
        "lstm/hidden": (torch.float32, (7, 5)),
        "lstm/cell": (torch.float32, (7, 5)),
    }
    assert not any(x.any() for x in state.values())
    assert make_network(NetworkConfig()).initial_state(7) == {}


def test_gradient_reaches_every_parameter() -> None:
    """The network has no parameter that it does not use."""
    config = dataclasses.replace(CONFIGS[-1], frame_stack=2)
    network = make_network(config)
    output, _ = network(random_rows(SPEC, T, B, seeded(6)), network.initial_state(B))
    (output.logits.square().sum() + output.values.square().sum()).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name
