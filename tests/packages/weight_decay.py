"""An agent with a flag of its own: V-trace whose weights decay (Loshchilov and Hutter 2019)."""

import dataclasses

import torch
from torch import nn

from learner.agents.vtrace import VTraceAgent
from learner.config.agent_config import VTraceConfig
from seed.errors import require


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecayingConfig(VTraceConfig):
    """V-trace's flags and one more."""

    weight_decay: float = 1e-4
    """Share of each weight that is subtracted after each learner step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.weight_decay < 1, "weight_decay", "[0, 1)", self.weight_decay)


class DecayingVTrace(VTraceAgent):
    """Named by --agent; it names its flags by `Config`."""

    Config = DecayingConfig

    @torch.no_grad()
    def after_update(self, network: nn.Module, learner_step: int) -> None:
        super().after_update(network, learner_step)
        assert isinstance(self.config, DecayingConfig)
        for parameter in network.parameters():
            parameter.mul_(1 - self.config.weight_decay)
