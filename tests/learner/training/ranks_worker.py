"""What each of several learners does in `test_ranks`. Imported by spawned processes."""

import os
from typing import Any

import torch
from torch import Tensor

from learner.agents.base import Agent
from learner.agents.r2d2 import R2D2Agent
from learner.agents.vtrace import VTraceAgent
from learner.config.agent_config import R2D2Config, VTraceConfig
from learner.config.run_config import NetworkConfig, OptimizerConfig
from learner.config.torchrun import Place
from learner.records import Batch, Unrolls, select_unrolls
from learner.reporting.metrics import Metrics
from learner.training.ranks import Ranks
from learner.training.trainer import Trainer
from tests.learner.builders import SCREEN, SPEED, env_spec, random_unrolls, seeded

BATCH_SIZE = 6
NUM_UPDATES = 3

_NETWORK = NetworkConfig(
    torso="small_conv", hidden_sizes=(8,), lstm_size=5, frame_stack=2, center_images=True
)


def make_agent(algorithm: str) -> Agent:
    """Returns an agent whose network keeps statistics, and whose loss is a mean."""
    spec = env_spec(SCREEN, SPEED)
    if algorithm == "vtrace":
        return VTraceAgent(spec, _NETWORK, VTraceConfig(unroll_length=4, loss_reduction="mean"))
    return R2D2Agent(spec, _NETWORK, R2D2Config(sequence_length=3, burn_in=1, head_size=4))


def make_batch(agent: Agent, number: int) -> Unrolls:
    """Returns the whole batch of an update, the same each time."""
    state = agent.initial_state(BATCH_SIZE, torch.device("cpu"))
    return random_unrolls(env_spec(SCREEN, SPEED), 5, BATCH_SIZE, state, seeded(number))


def train(algorithm: str, place: Place) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Returns weights and metrics after some updates with this rank's share of each batch."""
    # Each rank starts with weights of its own, and those of the first must be used.
    torch.manual_seed(place.rank)
    agent, ranks, metrics = make_agent(algorithm), Ranks(place), Metrics()
    network = agent.build_network()
    optimizer = OptimizerConfig(learning_rate=0.01, max_grad_norm=0.1)
    trainer = Trainer(agent, network, optimizer, metrics, ranks=ranks)
    ranks.join(network, learner_step=0)
    share = BATCH_SIZE // place.size
    for number in range(NUM_UPDATES):
        unrolls = make_batch(agent, number)
        mine = select_unrolls(unrolls, share * place.rank, share * (place.rank + 1))
        trainer.train_step(Batch(mine), learner_step=number, progress=0.0)
    ranks.leave()
    return trainer.network.state_dict(), metrics.drain()


def work(algorithm: str, place: Place, environment: dict[str, str], answers: Any) -> None:
    """Trains as one of several processes, and sends its weights and metrics."""
    os.environ |= environment
    torch.set_num_threads(1)
    weights, metrics = train(algorithm, place)
    answers.send(({name: x.tolist() for name, x in weights.items()}, metrics))


def resume(learner_step: int, place: Place, environment: dict[str, str], answers: Any) -> None:
    """Joins with a checkpoint of `learner_step`, and sends the error or None."""
    os.environ |= environment
    try:
        Ranks(place).join(make_agent("vtrace").build_network(), learner_step)
    except Exception as error:
        answers.send(f"{type(error).__name__}: {error}")
