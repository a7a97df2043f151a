"""Batch -> loss -> update -> new version of the weights. Runs on the trainer thread.

`Trainer.train_step` makes one update; `run_training` calls it.
"""

from typing import Any

import torch
from torch import Tensor, nn

from learner.agents.base import Agent
from learner.algos.optimizers import learning_rate_at, make_optimizer
from learner.config.run_config import OptimizerConfig
from learner.records import Batch, Unrolls, transitions
from learner.reporting.metrics import Metrics
from learner.training.finite_guard import FiniteGuard
from learner.training.gradients import Gradients
from learner.training.ranks import Ranks


class Trainer:
    """Owns the trained network and its optimiser."""

    def __init__(
        self,
        agent: Agent,
        network: nn.Module,
        config: OptimizerConfig,
        metrics: Metrics,
        num_threads: int = 1,
        ranks: Ranks | None = None,
        guard: FiniteGuard | None = None,
        compile_torsos: bool = False,
    ) -> None:
        """`num_threads` share the work of each batch, on the CPU; so do `ranks`. Without a
        `guard` every update is made, even one that is not finite."""
        self.agent = agent
        self.network = network.train()
        self._config = config
        self._metrics = metrics
        self._guard = guard
        self._parameters = [p for p in network.parameters() if p.requires_grad]
        self._optimizer = make_optimizer(self._parameters, config)
        self._ranks = ranks or Ranks()
        self._gradients = Gradients(
            agent, self.network, num_threads, self._ranks, compile_torsos=compile_torsos
        )

    def train_step(self, batch: Batch, *, learner_step: int, progress: float) -> Tensor | None:
        """Updates the weights from one batch.

        Args:
          batch: of B unrolls, or this rank's share of them.
          learner_step: updates made before this one, which is also the version of the
            weights being updated.
          progress: how much of the run is done, in [0, 1]; for schedules.

        Returns:
          The unrolls' new priorities, float32 [B], if the agent has any.

        Raises:
          NonFiniteLossError: too many updates in a row would not have been finite. Each
            was left out, and the weights are as they were before it.
        """
        learning_rate = learning_rate_at(self._config, progress)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self.agent.update_statistics(self.network, batch.unrolls)
        self._ranks.average_buffers(self.network)
        metrics, priorities = self._gradients.compute(batch, progress=progress)
        max_norm = self._config.max_grad_norm or float("inf")
        grad_norm = nn.utils.clip_grad_norm_(self._parameters, max_norm, foreach=True)
        # One transfer for all scalars, not one each; before the step, which depends on them.
        # They are sums over the ranks, so all ranks decide the same.
        values = _to_host(metrics | {"optimizer/grad_norm_mean": grad_norm})
        if self._guard is not None and not self._guard.admits(values, batch, learner_step):
            # Sequences whose loss is not finite get the lowest priority.
            return None if priorities is None else priorities.nan_to_num(0, posinf=0)
        self._optimizer.step()
        self.agent.after_update(self.network, learner_step + 1)
        for name, value in self.agent.finish_metrics(values).items():
            self._metrics.mean(name, value)
        self._report_lag(batch.unrolls, learner_step)
        self._metrics.gauge("optimizer/learning_rate", learning_rate)
        return priorities

    @property
    def acting_part(self) -> nn.Module:
        """The part of the trained network that acting reads."""
        return self.agent.acting_part(self.network)

    def state_dict(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps besides the weights."""
        return {"optimizer": self._optimizer.state_dict()}

    def load(self, weights: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Loads a checkpoint. Raises RuntimeError if it holds another network."""
        self.network.load_state_dict(weights)
        self._optimizer.load_state_dict(state["optimizer"])

    def close(self) -> None:
        """Ends the threads that share the work."""
        self._gradients.close()

    def _report_lag(self, unrolls: Unrolls, learner_step: int) -> None:
        mask = transitions(unrolls.steps.rows, discount_factor=1.0).mask
        lags = (learner_step - unrolls.steps.policy_versions[:-1]) * mask
        num_valid, total, largest = torch.stack([mask.sum(), lags.sum(), lags.max()]).tolist()
        if num_valid:
            self._metrics.mean("policy/lag_mean", total / num_valid, num_valid)
            self._metrics.max("policy/lag_max", largest)


def _to_host(values: dict[str, Tensor]) -> dict[str, float]:
    scalars = torch.stack([value.detach() for value in values.values()]).tolist()
    return dict(zip(values, scalars, strict=True))
