"""One row of every environment as acting stores it, and an example of such a row.

The inference thread calls `make_step`. Stores of rows read names, shapes and dtypes from the
example.
"""

import torch

from learner.agents.base import ActInput, ActOutput, Agent
from learner.records import Rows, State, Steps, Unrolls
from seed.specs import EnvSpec


def make_step(rows: Rows, output: ActOutput, state: State, version: int) -> Unrolls:
    """Returns one row [1, N, ...] of every environment as the stores take it.

    Args:
      rows: [1, N, ...], what the environments sent.
      output: the result of `Agent.act` at the rows.
      state: [N, ...], the network's state before them.
      version: of the weights that acted.
    """
    is_first = rows.is_first
    versions = torch.full(is_first.shape, version, dtype=torch.int64, device=is_first.device)
    steps = Steps(
        rows=rows,
        actions=output.actions.unsqueeze(0),
        policy_outputs={name: x.unsqueeze(0) for name, x in output.policy_outputs.items()},
        policy_versions=versions,
    )
    return Unrolls(steps, state)


def example_step(spec: EnvSpec, agent: Agent) -> Unrolls:
    """Returns a row of zeros [1, 1, ...] as acting stores it, on the CPU."""
    flags = torch.zeros(1, 1, dtype=torch.bool)
    rows = Rows(
        observations=tuple(
            torch.zeros((1, 1, *leaf.shape), dtype=getattr(torch, leaf.dtype))
            for leaf in spec.observations
        ),
        rewards=torch.zeros(1, 1),
        previous_actions=torch.zeros(1, 1, dtype=torch.int64),
        is_first=flags,
        terminated=flags,
        truncated=flags,
    )
    state = agent.initial_state(1, torch.device("cpu"))
    inputs = ActInput(rows, state, slots=torch.zeros(1, dtype=torch.int64))
    network = agent.acting_part(agent.build_network())
    with torch.inference_mode():
        output = agent.act(network, inputs, torch.Generator())
    return make_step(rows, output, state, version=0)
