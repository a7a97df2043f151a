"""One row of every environment: how it is put together, and the example of it."""

import pytest
import torch
from torch import Tensor

from learner.agents.base import ActInput, Agent
from learner.agents.r2d2 import R2D2Agent
from learner.agents.steps import example_step, make_step
from learner.agents.vtrace import VTraceAgent
from learner.config.agent_config import R2D2Config, VTraceConfig
from learner.records import Unrolls, flatten
from tests.learner.builders import GEAR, NETWORKS, SCREEN, SPEED, env_spec, random_rows, seeded

SPEC = env_spec(SCREEN, SPEED, GEAR)
AGENTS: dict[str, Agent] = {
    "vtrace": VTraceAgent(SPEC, NETWORKS["everything"], VTraceConfig()),
    "r2d2": R2D2Agent(SPEC, NETWORKS["everything"], R2D2Config(head_size=8)),
}


def acted(agent: Agent, num_envs: int, version: int) -> tuple[ActInput, Unrolls, Tensor]:
    """Returns what an agent read, the row that is stored of it, and the actions."""
    state = agent.initial_state(num_envs, torch.device("cpu"))
    rows = random_rows(SPEC, 1, num_envs, seeded())
    inputs = ActInput(rows, state, torch.arange(num_envs))
    network = agent.acting_part(agent.build_network())
    with torch.inference_mode():
        output = agent.act(network, inputs, seeded())
    return inputs, make_step(rows, output, state, version), output.actions


@pytest.mark.parametrize("name", AGENTS)
def test_row_holds_what_was_read_and_what_was_decided(name: str) -> None:
    """The state is the one before the row, and every environment has the version that acted."""
    inputs, step, actions = acted(AGENTS[name], 5, version=3)
    assert step.steps.rows is inputs.rows
    assert step.initial_state is inputs.state
    assert torch.equal(step.steps.actions, actions.view(1, 5))
    assert step.steps.policy_versions.tolist() == [[3] * 5]


@pytest.mark.parametrize("name", AGENTS)
def test_example_has_the_names_shapes_and_dtypes_of_a_row(name: str) -> None:
    """Stores and the ring take their memory by it, for one environment."""
    _, step, _ = acted(AGENTS[name], 1, version=3)
    row, example = flatten(step), flatten(example_step(SPEC, AGENTS[name]))
    assert {path: (x.shape, x.dtype) for path, x in example.items()} == {
        path: (x.shape, x.dtype) for path, x in row.items()
    }
