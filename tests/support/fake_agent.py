"""An agent without an algorithm, for tests of what surrounds one."""

import torch
from torch import Tensor, nn

from learner.agents.base import ActOutput, LossOutput
from learner.records import Rows, State, Unrolls


class FakeAgent:
    """Satisfies `learner.agents.base.Agent`.

    It has no state and takes no notice of batches and updates. Whatever else a test
    is to call, its own agent overrides; the rest fails, since nobody was to call it.
    """

    unroll_length = 1
    batch_size = 1

    def build_network(self) -> nn.Module:
        raise AssertionError("no network expected")

    def initial_state(self, batch_size: int, device: torch.device | str = "cpu") -> State:
        return {}

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
        raise AssertionError("no acting expected")

    def update_statistics(self, network: nn.Module, unrolls: Unrolls) -> None:
        """Takes no notice."""

    def num_valid(self, unrolls: Unrolls) -> Tensor:
        raise AssertionError("no training expected")

    def loss(
        self,
        network: nn.Module,
        unrolls: Unrolls,
        num_valid: Tensor,
        importance_weights: Tensor | None = None,
        progress: float = 0.0,
    ) -> LossOutput:
        raise AssertionError("no training expected")

    def after_update(self, network: nn.Module, learner_step: int) -> None:
        """Takes no notice."""

    def log_ratios(self, network: nn.Module, unrolls: Unrolls) -> Tensor:
        raise AssertionError("no golden check expected")
