"""Action 0 for everybody, to measure what surrounds an agent. It cannot be trained."""

import torch
from torch import Tensor, nn

from learner.agents.base import ActOutput, LossOutput
from learner.records import Rows, State, Unrolls


class NullAgent:
    """Satisfies `learner.agents.base.Agent`, with the state of an LSTM that it leaves alone."""

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

    def act(
        self,
        network: nn.Module,
        rows: Rows,
        state: State,
        *,
        slots: Tensor,
        generator: torch.Generator,
        greedy: Tensor | None = None,
    ) -> ActOutput:
        del network, generator, greedy
        logits = rows.rewards.new_zeros((len(slots), self._num_actions))
        return ActOutput(torch.zeros_like(slots), {"logits": logits}, state)

    def update_statistics(self, network: nn.Module, unrolls: Unrolls) -> None:
        raise AssertionError("nothing is trained")

    def num_valid(self, unrolls: Unrolls) -> Tensor:
        raise AssertionError("nothing is trained")

    def loss(
        self,
        network: nn.Module,
        unrolls: Unrolls,
        num_valid: Tensor,
        importance_weights: Tensor | None = None,
        progress: float = 0.0,
    ) -> LossOutput:
        raise AssertionError("nothing is trained")

    def after_update(self, network: nn.Module, learner_step: int) -> None:
        raise AssertionError("nothing is trained")

    def log_ratios(self, network: nn.Module, unrolls: Unrolls) -> Tensor:
        raise AssertionError("nothing is trained")
