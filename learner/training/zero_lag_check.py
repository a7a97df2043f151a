"""The golden check, in every run: recorded outputs can be recomputed.

With the weights that acted, a forward pass over a stored unroll must return the outputs that
were recorded at acting time, to float tolerance. A shift between actions and outputs, a state
or frame stack that leaks or is lost, and a mix of weights all show here. Called by the trainer
thread.
"""

import torch
from torch import nn

from learner.agents.base import Agent
from learner.records import Unrolls


class ZeroLagCheck:
    """Keeps the weights of one version until it gets unrolls that they acted on.

    Unrolls usually lag behind the newest weights, so a check against the newest would
    rarely find any.
    """

    def __init__(self, agent: Agent, network: nn.Module, every_steps: int) -> None:
        """`network` is the check's own copy; a new version is kept every `every_steps`."""
        self._agent = agent
        self._network = network.eval()
        self._every_steps = every_steps
        self._version: int | None = None
        self._next_version = 0

    @torch.no_grad()
    def published(self, network: nn.Module, version: int) -> None:
        """Offers the weights just published; one in `every_steps` is kept."""
        if self._version is None and version >= self._next_version:
            self._network.load_state_dict(network.state_dict())
            self._version = version
            self._next_version = version + self._every_steps

    def compare(self, unrolls: Unrolls) -> float | None:
        """Returns the largest |log ratio| over the rows that the kept weights chose.

        None if there are none. Only rows from the start of an unroll on count: after other
        weights have acted, rows depend on recurrent state that those weights made.
        """
        if self._version is None:
            return None
        chosen = (unrolls.steps.policy_versions == self._version).cumprod(dim=0).bool()
        if not chosen.any():
            if unrolls.steps.policy_versions.min() > self._version:
                self._version = None
            return None
        assert _actions_follow(unrolls), "actions are shifted against their rows"
        ratios = self._agent.log_ratios(self._network, unrolls)
        self._version = None
        return ratios[chosen].abs().max().item()


def _actions_follow(unrolls: Unrolls) -> bool:
    """Tells whether each row's action is the one that led to the next row.

    Log ratios cannot show this: they take the same action on both sides.
    """
    rows = unrolls.steps.rows
    same = rows.previous_actions[1:] == unrolls.steps.actions[:-1]
    return bool((same | rows.is_first[1:]).all())
