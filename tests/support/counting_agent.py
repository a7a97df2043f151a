"""An agent whose every output is a whole number that can be worked out by hand.

Its "network" counts the rows of the episode and remembers a checksum of all that
it saw, so one row missed, repeated or mixed up changes everything after it.
"""

import torch
from torch import Tensor, nn

from learner.agents.base import ActInput, ActOutput
from learner.networks.frame_stack import stack_frames
from learner.records import Rows, State
from tests.support.counting_env import NUM_ACTIONS
from tests.support.fake_agent import FakeAgent

FRAME_STACK = 3
_MODULUS = 9973


class CountingNetwork(nn.Module):
    """Its only weight is the version."""

    def __init__(self) -> None:
        super().__init__()
        self.version = nn.Parameter(torch.zeros(()))


class CountingAgent(FakeAgent):
    """Acts and does not learn."""

    def __init__(self, unroll_length: int) -> None:
        self.unroll_length = unroll_length

    def build_network(self) -> CountingNetwork:
        return CountingNetwork()

    def initial_state(self, batch_size: int, device: torch.device | str = "cpu") -> State:
        return {
            "count": torch.zeros(batch_size, dtype=torch.int64, device=device),
            "checksum": torch.zeros(batch_size, dtype=torch.int64, device=device),
            "frames": torch.zeros(batch_size, FRAME_STACK - 1, 3, device=device),
        }

    def act(self, network: nn.Module, inputs: ActInput, generator: torch.Generator) -> ActOutput:
        count, checksum, stacked, frames = step(inputs.rows, inputs.state)
        actions = checksum % NUM_ACTIONS
        outputs = {
            "count": count,
            "checksum": checksum,
            "stacked": stacked,
            "version": version_of(network).expand(count.shape[0]).clone(),
        }
        return ActOutput(actions, outputs, {"count": count, "checksum": checksum, "frames": frames})


def version_of(network: nn.Module) -> Tensor:
    """Returns the one weight of a counting network."""
    assert isinstance(network, CountingNetwork)
    return network.version


def step(rows: Rows, state: State) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns (count, checksum, stacked [B, S, 3], frames) after rows [1, B]."""
    is_first = rows.is_first[0]
    count = torch.where(is_first, 0, state["count"]) + 1
    checksum = torch.where(is_first, 0, state["checksum"])
    action = torch.where(is_first, 0, rows.previous_actions[0])
    seen = rows.observations[0][0].sum(-1).long() + rows.rewards[0].long() + 17 * action
    stacked, frames = stack_frames(state["frames"], rows.observations[0], rows.is_first)
    return count, (checksum * 31 + seen + 7) % _MODULUS, stacked[0], frames
