"""One update worked by hand, its metrics, and exact resume."""

import math
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import nn

from learner.agents.vtrace import VTraceAgent
from learner.checkpoint import load_checkpoint, save_checkpoint
from learner.config.agent_config import VTraceConfig
from learner.config.run_config import NetworkConfig, OptimizerConfig
from learner.records import Batch, Unrolls
from learner.reporting.metric_table import is_known
from learner.reporting.metrics import Metrics
from learner.training.trainer import Trainer
from tests.learner.builders import (
    SCREEN,
    SPEED,
    env_spec,
    numbered_unrolls,
    random_unrolls,
    seeded,
    with_random_weights,
)
from tests.learner.training.slope_agent import GRADIENT, SlopeAgent, make_trainer, weights_of

OPTIMIZERS = ("rmsprop", "rmsprop_tf", "adam")


def step(trainer: Trainer, *, progress: float = 0.0, learner_step: int = 0) -> None:
    """Makes one update."""
    trainer.train_step(Batch(numbered_unrolls([0])), learner_step=learner_step, progress=progress)


def test_update_equals_rmsprop_by_hand() -> None:
    """The update is w - lr g / (sqrt((1 - alpha) g^2) + epsilon), from an accumulator of 0."""
    trainer, _ = make_trainer(optimizer_decay=0.99, epsilon=0.01)
    step(trainer)
    expected = [
        start - 0.5 * g / (math.sqrt(0.01 * g * g) + 0.01)
        for start, g in zip((1.0, 2.0), GRADIENT, strict=True)
    ]
    assert weights_of(trainer.network).tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("max_grad_norm", "scale"),
    [(1.0, 0.2), (40.0, 1.0), (0.0, 1.0)],
    ids=["above_norm", "below_norm", "no_clipping"],
)
def test_gradient_is_clipped_to_its_global_norm(max_grad_norm: float, scale: float) -> None:
    """A shorter gradient stays, and the reported norm is that before clipping."""
    trainer, metrics = make_trainer(max_grad_norm=max_grad_norm, epsilon=1.0)
    step(trainer)
    assert metrics.drain()["optimizer/grad_norm_mean"] == pytest.approx(5)
    clipped = [scale * g for g in GRADIENT]
    expected = [
        start - 0.5 * g / (math.sqrt(0.01 * g * g) + 1)
        for start, g in zip((1.0, 2.0), clipped, strict=True)
    ]
    assert weights_of(trainer.network).tolist() == pytest.approx(expected)


def test_gradients_of_earlier_updates_are_forgotten() -> None:
    """Else they would add up to a growing norm."""
    trainer, metrics = make_trainer()
    for _ in range(3):
        step(trainer)
    assert metrics.drain()["optimizer/grad_norm_mean"] == pytest.approx(5)


def test_frozen_parameters_are_neither_clipped_nor_updated() -> None:
    """A target network has such parameters."""
    agent = SlopeAgent()
    network = agent.build_network()
    network.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
    trainer = Trainer(agent, network, OptimizerConfig(learning_rate=0.5), Metrics())
    step(trainer)
    assert torch.equal(network.frozen, torch.ones(2))
    assert len(trainer.state_dict()["optimizer"]["param_groups"][0]["params"]) == 1


@pytest.mark.parametrize(
    ("schedule", "factors"), [("linear", (1.0, 0.75, 0.0)), ("constant", (1.0, 1.0, 1.0))]
)
def test_learning_rate_follows_its_schedule(schedule: str, factors: tuple[float, ...]) -> None:
    """The rate that is reported is the rate seen in the weights."""
    trainer, metrics = make_trainer(
        learning_rate_schedule=schedule, epsilon=1e6, optimizer_decay=0.0
    )
    for progress, factor in zip((0.0, 0.25, 1.0), factors, strict=True):
        before = weights_of(trainer.network).detach().clone()
        step(trainer, progress=progress)
        moved = (weights_of(trainer.network).detach() - before) * 1e6
        wanted = torch.tensor(GRADIENT) * -0.5 * factor
        # Weights near 1 resolve steps of 1e-7.
        torch.testing.assert_close(moved, wanted, atol=0.15, rtol=0)
        assert metrics.drain()["optimizer/learning_rate"] == pytest.approx(0.5 * factor)


def unrolls_of_versions(versions: list[int], is_first: list[int]) -> Unrolls:
    """Returns one unroll whose rows acted with `versions`."""
    unrolls = numbered_unrolls([0], num_rows=len(versions))
    rows = unrolls.steps.rows._replace(
        is_first=torch.tensor(is_first, dtype=torch.bool).unsqueeze(1)
    )
    steps = unrolls.steps._replace(rows=rows, policy_versions=torch.tensor(versions).unsqueeze(1))
    return unrolls._replace(steps=steps)


def test_lag_is_measured_on_trained_steps_only() -> None:
    """The row that only bootstraps acted too, as did the last row of an episode; neither
    of them is trained."""
    trainer, metrics = make_trainer()
    # Steps from rows 0, 1 and 3 exist; row 2 leads to a first row, row 4 is the last.
    unrolls = unrolls_of_versions([7, 8, 0, 9, 1], [0, 0, 0, 1, 0])
    trainer.train_step(Batch(unrolls), learner_step=10, progress=0)
    report = metrics.drain()
    assert report["policy/lag_mean"] == pytest.approx((3 + 2 + 1) / 3)
    assert report["policy/lag_max"] == 3


def test_lag_mean_weighs_batches_by_their_steps() -> None:
    """It is a mean over steps, and not one over batches."""
    trainer, metrics = make_trainer()
    trainer.train_step(Batch(unrolls_of_versions([0] * 4, [0] * 4)), learner_step=1, progress=0)
    trainer.train_step(Batch(unrolls_of_versions([0] * 2, [0] * 2)), learner_step=5, progress=0)
    report = metrics.drain()
    assert report["policy/lag_mean"] == pytest.approx((3 * 1 + 1 * 5) / 4)
    assert report["policy/lag_max"] == 5


def test_lag_is_absent_where_no_step_was_trained() -> None:
    """A mean over nothing is absent."""
    trainer, metrics = make_trainer()
    trainer.train_step(Batch(unrolls_of_versions([0, 0], [0, 1])), learner_step=5, progress=0)
    report = metrics.drain()
    assert "policy/lag_mean" not in report
    assert "policy/lag_max" not in report


def vtrace_agent(*, entropy_target: float | None = 0.5) -> VTraceAgent:
    """Returns an agent with everything that has a state: LSTM, statistics, theta."""
    network = NetworkConfig(
        torso="small_conv", hidden_sizes=(8,), lstm_size=5, frame_stack=2, center_images=True
    )
    config = VTraceConfig(unroll_length=4, batch_size=3, entropy_target=entropy_target)
    return VTraceAgent(env_spec(SCREEN, SPEED), network, config)


def vtrace_trainer(
    agent: VTraceAgent,
    optimizer: Literal["rmsprop", "rmsprop_tf", "adam"],
    *,
    learning_rate: float = 0.01,
    rng_seed: int = 0,
    num_threads: int = 1,
) -> Trainer:
    """Returns a trainer whose initial network follows from `rng_seed` alone."""
    config = OptimizerConfig(
        optimizer=optimizer, learning_rate=learning_rate, momentum=0.5, max_grad_norm=1.0
    )
    network = with_random_weights(agent.build_network(), rng_seed)
    return Trainer(agent, network, config, Metrics(), num_threads)


def train(trainer: Trainer, agent: VTraceAgent, steps: range) -> None:
    """Makes updates whose batches follow from their numbers alone."""
    for number in steps:
        state = agent.initial_state(3, torch.device("cpu"))
        unrolls = random_unrolls(agent.spec, 5, 3, state, seeded(number))
        trainer.train_step(Batch(unrolls), learner_step=number, progress=number / 10)


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_resumed_training_is_bit_for_bit_the_same(
    optimizer: Literal["rmsprop", "rmsprop_tf", "adam"], num_threads: int, tmp_path: Path
) -> None:
    """After three updates, a checkpoint and a new trainer, the next updates are equal."""
    agent = vtrace_agent()
    trainer = vtrace_trainer(agent, optimizer, num_threads=num_threads)
    train(trainer, agent, range(3))
    save_checkpoint(tmp_path, 3, trainer.network.state_dict(), trainer.state_dict(), keep=1)
    checkpoint = load_checkpoint(tmp_path)

    resumed = vtrace_trainer(agent, optimizer, rng_seed=1, num_threads=num_threads)
    resumed.load(checkpoint.weights, checkpoint.state)
    train(trainer, agent, range(3, 5))
    train(resumed, agent, range(3, 5))
    expected = trainer.network.state_dict()
    for name, got in resumed.network.state_dict().items():
        assert torch.equal(got, expected[name]), name
        assert not torch.equal(got, checkpoint.weights[name]), name


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_learning_rate_of_0_leaves_every_weight_unchanged(
    optimizer: Literal["rmsprop", "rmsprop_tf", "adam"],
) -> None:
    """Runs for the golden check need this."""
    agent = vtrace_agent()
    trainer = vtrace_trainer(agent, optimizer, learning_rate=0.0)
    before = {name: x.detach().clone() for name, x in trainer.network.named_parameters()}
    train(trainer, agent, range(3))
    for name, parameter in trainer.network.named_parameters():
        assert torch.equal(parameter, before[name]), name


def test_weights_of_another_network_are_refused() -> None:
    """The trainer raises an error, which the caller can explain to the user."""
    trainer = vtrace_trainer(vtrace_agent(entropy_target=None), "rmsprop")
    other = vtrace_trainer(vtrace_agent(entropy_target=0.5), "rmsprop")
    with pytest.raises(RuntimeError, match="entropy_theta"):
        trainer.load(other.network.state_dict(), other.state_dict())


def test_every_metric_of_an_update_is_documented() -> None:
    """The documentation has the trainer's metrics and the agent's."""
    agent = vtrace_agent()
    metrics = Metrics()
    trainer = Trainer(agent, agent.build_network(), OptimizerConfig(), metrics)
    train(trainer, agent, range(1))
    report = metrics.drain()
    assert [name for name in report if not is_known(name)] == []
    assert report.keys() >= {"loss/total", "value/explained_variance", "policy/lag_mean"}
    assert all(math.isfinite(value) for value in report.values())
