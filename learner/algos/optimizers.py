"""Config -> optimiser, and the learning rate over a run.

Called by the trainer thread, which writes the learning rate into the optimiser's
parameter groups before each step, and clips gradients.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from learner.algos.rmsprop import RMSpropTF
from learner.config.run_config import OptimizerConfig, Schedule


def make_optimizer(parameters: Iterable[Tensor], config: OptimizerConfig) -> torch.optim.Optimizer:
    """Returns the optimiser that `config` names, at its starting learning rate."""
    parameters = list(parameters)
    if config.optimizer == "adam":
        return torch.optim.Adam(
            parameters,
            lr=config.learning_rate,
            betas=(config.momentum, config.optimizer_decay),
            eps=config.epsilon,
            fused=True,
        )
    if config.optimizer == "rmsprop_tf":
        return RMSpropTF(
            parameters,
            lr=config.learning_rate,
            alpha=config.optimizer_decay,
            eps=config.epsilon,
            momentum=config.momentum,
        )
    return torch.optim.RMSprop(
        parameters,
        lr=config.learning_rate,
        alpha=config.optimizer_decay,
        eps=config.epsilon,
        momentum=config.momentum,
        foreach=True,
    )


def learning_rate_at(config: OptimizerConfig, progress: float) -> float:
    """Returns the learning rate once `progress` in [0, 1] of the run is done."""
    return scheduled(config.learning_rate, config.learning_rate_schedule, progress)


def scheduled(initial: float, schedule: Schedule, progress: float) -> float:
    """Returns the value of a setting once `progress` in [0, 1] of the run is done.

    The last batch may overshoot the budget: progress above 1 counts as 1.
    """
    return initial if schedule == "constant" else initial * (1.0 - min(progress, 1.0))
