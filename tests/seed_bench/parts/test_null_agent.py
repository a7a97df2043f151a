"""The agent that only acts: what surrounds it must find all that an agent has."""

import pytest
import torch

from learner.agents.base import ActInput
from learner.agents.steps import example_step
from learner.records import Rows
from seed_bench.parts.null_agent import NullAgent
from tests.learner.builders import env_spec

NUM_ENVS, NUM_ACTIONS, LSTM_SIZE = 3, 5, 4


@pytest.fixture
def agent() -> NullAgent:
    """An agent with the state of a small LSTM."""
    return NullAgent(num_actions=NUM_ACTIONS, unroll_length=7, lstm_size=LSTM_SIZE)


def _rows() -> Rows:
    none = torch.zeros(1, NUM_ENVS, dtype=torch.bool)
    actions = torch.zeros(1, NUM_ENVS, dtype=torch.int64)
    return Rows((torch.zeros(1, NUM_ENVS, 2),), torch.zeros(1, NUM_ENVS), actions, *[none] * 3)


def test_every_action_is_the_first_and_the_state_stays(agent: NullAgent) -> None:
    """Logits have one value for each action, so that as much is stored as by a real agent."""
    state = agent.initial_state(NUM_ENVS, torch.device("cpu"))
    assert {name: tuple(x.shape) for name, x in state.items()} == {
        "hidden": (NUM_ENVS, LSTM_SIZE),
        "cell": (NUM_ENVS, LSTM_SIZE),
    }
    inputs = ActInput(_rows(), state, slots=torch.arange(NUM_ENVS))
    output = agent.act(agent.build_network(), inputs, torch.Generator())
    assert output.actions.tolist() == [0] * NUM_ENVS
    assert output.policy_outputs["logits"].shape[-1] == NUM_ACTIONS
    assert output.state is state


def test_nothing_is_trained(agent: NullAgent) -> None:
    """Its network has no weights; who trains it is told at once."""
    assert list(agent.build_network().parameters()) == []
    with pytest.raises(AssertionError, match="nothing is trained"):
        agent.num_valid(example_step(env_spec(), agent))
