"""Action 0 for every environment, to measure everything but an agent. It cannot be trained."""

import torch
from torch import Tensor, nn

from learner.agents.base import ActInput, ActOutput, Agent, LossOutput
from learner.config.agent_config import VTraceConfig
from learner.experience.base import Experience, ExperienceContext
from learner.records import Batch, State, Unrolls


class NullAgent(Agent):
    """Carries the state of an LSTM and leaves it alone."""

    Config = VTraceConfig

    def __init__(self, *, num_actions: int, unroll_length: int, lstm_size: int) -> None:
        self.unroll_length = unroll_length
        self.batch_size = 32
        self._num_actions = num_actions
        self._lstm_size = lstm_size

    def build_network(self) -> nn.Module:
        return nn.Module()

    def initial_state(self, batch_size: int, device: torch.device) -> State:
        shape = (batch_size, self._lstm_size)
        return {name: torch.zeros(shape, device=device) for name in ("hidden", "cell")}

    def act(self, network: nn.Module, inputs: ActInput, generator: torch.Generator) -> ActOutput:
        slots = inputs.slots
        logits = inputs.rows.rewards.new_zeros((len(slots), self._num_actions))
        return ActOutput(torch.zeros_like(slots), {"logits": logits}, inputs.state)

    def make_experience(self, context: ExperienceContext) -> Experience:
        raise AssertionError("nothing is trained")

    def num_valid(self, unrolls: Unrolls) -> Tensor:
        raise AssertionError("nothing is trained")

    def loss(
        self, network: nn.Module, batch: Batch, num_valid: Tensor, progress: float
    ) -> LossOutput:
        raise AssertionError("nothing is trained")

    def log_ratios(self, network: nn.Module, unrolls: Unrolls) -> Tensor:
        raise AssertionError("nothing is trained")
