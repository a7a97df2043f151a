"""A trainer process whose loss raises. The spawned process imports this module."""

from learner.agents.vtrace import VTraceAgent
from learner.config.run_config import RunConfig
from learner.config.run_dir import RunDir
from learner.training.process.main import Ends, run_trainer_process


def explode(*_: object) -> None:
    """Raises in place of a loss."""
    raise RuntimeError("boom in the loss")


def run_exploding_trainer(config: RunConfig, run_dir: RunDir, ends: Ends) -> None:
    """Runs as `run_trainer_process` until the first update."""
    VTraceAgent.loss = explode  # type: ignore[method-assign,assignment]
    run_trainer_process(config, run_dir, ends)
