"""An agent of two weights with known updates, and a trainer for it."""

from typing import Any

import torch
from torch import Tensor, nn

from learner.agents.base import LossOutput
from learner.config.run_config import OptimizerConfig
from learner.records import Batch, Unrolls
from learner.reporting.metrics import Metrics
from learner.training.trainer import Trainer
from tests.support.fake_agent import FakeAgent

GRADIENT = (3.0, -4.0)  # Its norm is 5.


class Slope(nn.Module):
    """Two weights."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.tensor([1.0, 2.0]))


class SlopeAgent(FakeAgent):
    """Its loss has the same gradient everywhere, so every update is known."""

    unroll_length = 2
    batch_size = 2

    def __init__(self) -> None:
        self.trained_on: list[Unrolls] = []
        self.updates: list[tuple[int, Tensor]] = []
        self.prioritises = False
        self.progress: list[float] = []

    def build_network(self) -> Slope:
        return Slope()

    def update_statistics(self, network: nn.Module, unrolls: Unrolls) -> None:
        self.trained_on.append(unrolls)

    def num_valid(self, unrolls: Unrolls) -> Tensor:
        return torch.tensor(1.0)

    def loss(
        self, network: nn.Module, batch: Batch, num_valid: Tensor, progress: float
    ) -> LossOutput:
        self.progress.append(progress)
        loss = weights_of(network) @ torch.tensor(GRADIENT)
        priorities = batch.unrolls.steps.actions[0].to(torch.float32) if self.prioritises else None
        return LossOutput(loss, {"loss/total": loss.detach()}, priorities)

    def after_update(self, network: nn.Module, learner_step: int) -> None:
        self.updates.append((learner_step, weights_of(network).detach().clone()))

    def log_ratios(self, network: nn.Module, unrolls: Unrolls) -> Tensor:
        return torch.full(unrolls.steps.rows.is_first.shape, 0.25)


def weights_of(network: nn.Module) -> Tensor:
    """Returns the two weights."""
    assert isinstance(network, Slope)
    return network.weights


def make_trainer(**config: Any) -> tuple[Trainer, Metrics]:
    """Returns a trainer of a fresh `Slope`, and the metrics that it writes."""
    metrics, agent = Metrics(), SlopeAgent()
    plain: dict[str, Any] = {"learning_rate": 0.5, "max_grad_norm": 0} | config
    return Trainer(agent, agent.build_network(), OptimizerConfig(**plain), metrics), metrics
