"""One row of every environment as acting stores it: made by the inference thread, and an example.

What holds rows asks the example for its names, shapes and dtypes.
"""

import torch
from torch import nn

from learner.agents.base import ActOutput, Agent
from learner.records import Rows, State, Unrolls
from seed.specs import EnvSpec


def make_step(rows: Rows, output: ActOutput, state: State, version: int) -> Unrolls:
    """Returns one row [1, N, ...] of every environment as the stores take it."""
    return Unrolls(
        rows=rows,
        actions=output.actions.unsqueeze(0),
        policy_outputs={name: x.unsqueeze(0) for name, x in output.policy_outputs.items()},
        policy_versions=torch.full_like(rows.previous_actions, version),
        initial_state=state,
    )


def example_step(spec: EnvSpec, agent: Agent, network: nn.Module) -> Unrolls:
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
    slots = torch.zeros(1, dtype=torch.int64)
    with torch.inference_mode():
        output = agent.act(network, rows, state, slots=slots, generator=torch.Generator())
    return make_step(rows, output, state, version=0)
