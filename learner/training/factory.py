"""Where training runs: on threads of this process, or in a process of its own."""

import torch

from learner.device.setup import uses_trainer_process
from learner.reporting.metrics import Metrics
from learner.training.base import Training, TrainingSetup
from learner.training.local import LocalTraining
from learner.training.process.handle import TrainerProcess


def make_training(setup: TrainingSetup, metrics: Metrics, device: torch.device) -> Training:
    """Returns training that is not built yet; a process of its own is started at once.

    Args:
      setup: config, progress, ranks, directory and hooks.
      metrics: receives what this process measures.
      device: to train on.

    Raises:
      ConfigError: a process is wanted on a GPU.
    """
    if uses_trainer_process(device, setup.config.learner.train_in):
        return TrainerProcess(setup)
    return LocalTraining(setup, metrics, device)
