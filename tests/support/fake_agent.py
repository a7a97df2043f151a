"""An agent without an algorithm, for tests of the code around agents."""

import torch
from torch import Tensor, nn

from learner.agents.base import ActInput, ActOutput, Agent, LossOutput
from learner.config.agent_config import VTraceConfig
from learner.experience.base import Experience, ExperienceContext
from learner.records import Batch, State, Unrolls


class FakeAgent(Agent):
    """It has no state. A test's agent overrides the methods that the test calls; others fail."""

    Config = VTraceConfig
    unroll_length = 1
    batch_size = 1

    def build_network(self) -> nn.Module:
        raise AssertionError("no network expected")

    def initial_state(self, batch_size: int, device: torch.device | str = "cpu") -> State:
        return {}

    def act(self, network: nn.Module, inputs: ActInput, generator: torch.Generator) -> ActOutput:
        raise AssertionError("no acting expected")

    def make_experience(self, context: ExperienceContext) -> Experience:
        raise AssertionError("no training expected")

    def num_valid(self, unrolls: Unrolls) -> Tensor:
        raise AssertionError("no training expected")

    def loss(
        self, network: nn.Module, batch: Batch, num_valid: Tensor, progress: float
    ) -> LossOutput:
        raise AssertionError("no training expected")

    def log_ratios(self, network: nn.Module, unrolls: Unrolls) -> Tensor:
        raise AssertionError("no golden check expected")
