"""One update worked by hand, what is measured of it, and exact resume."""

import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from learner.agents.base import LossOutput
from learner.agents.vtrace import VTraceAgent
from learner.checkpoint import load_checkpoint, save_checkpoint
from learner.counters import Counters
from learner.experience import Batch
from learner.fresh_unrolls import FreshUnrolls
from learner.metrics import Metrics, is_known
from learner.records import Unrolls
from learner.trainer import Trainer, run_training
from learner.unrolls import Completed
from learner.weights import PublishedWeights
from learner.zero_lag_check import ZeroLagCheck
from seed.config import NetworkConfig, OptimizerConfig, VTraceConfig
from tests.learner.builders import (
    SCREEN,
    SPEED,
    TIMEOUT_S,
    assert_same,
    env_spec,
    in_thread,
    numbered_unrolls,
    random_unrolls,
    seeded,
    with_random_weights,
)
from tests.support.fake_agent import FakeAgent

OPTIMIZERS = ("rmsprop", "rmsprop_tf", "adam")
GRADIENT = (3.0, -4.0)  # of norm 5


class Slope(nn.Module):
    """Two weights."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.tensor([1.0, 2.0]))


class SlopeAgent(FakeAgent):
    """Its loss has the same gradient everywhere, so that every update is known."""

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
        self,
        network: nn.Module,
        unrolls: Unrolls,
        num_valid: Tensor,
        importance_weights: Tensor | None = None,
        progress: float = 0.0,
    ) -> LossOutput:
        self.progress.append(progress)
        loss = weights_of(network) @ torch.tensor(GRADIENT)
        priorities = unrolls.actions[0].to(torch.float32) if self.prioritises else None
        return LossOutput(loss, {"loss/total": loss.detach()}, priorities)

    def after_update(self, network: nn.Module, learner_step: int) -> None:
        self.updates.append((learner_step, weights_of(network).detach().clone()))

    def log_ratios(self, network: nn.Module, unrolls: Unrolls) -> Tensor:
        return torch.full(unrolls.actions.shape, 0.25)


def weights_of(network: nn.Module) -> Tensor:
    """Returns the two weights."""
    assert isinstance(network, Slope)
    return network.weights


def make_trainer(**config: Any) -> tuple[Trainer, Metrics]:
    """Returns a trainer of a fresh `Slope`, and the metrics that it writes."""
    metrics, agent = Metrics(), SlopeAgent()
    plain: dict[str, Any] = {"learning_rate": 0.5, "max_grad_norm": 0} | config
    return Trainer(agent, agent.build_network(), OptimizerConfig(**plain), metrics), metrics


def step(trainer: Trainer, *, progress: float = 0.0, learner_step: int = 0) -> None:
    """Makes one update."""
    trainer.train_step(Batch(numbered_unrolls([0])), learner_step=learner_step, progress=progress)


def test_update_equals_rmsprop_by_hand() -> None:
    """w - lr g / (sqrt((1 - alpha) g^2) + epsilon), from an accumulator of 0."""
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
    """Only where longer; the norm reported is that before clipping."""
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
    """They would add up to a larger and larger norm."""
    trainer, metrics = make_trainer()
    for _ in range(3):
        step(trainer)
    assert metrics.drain()["optimizer/grad_norm_mean"] == pytest.approx(5)


@pytest.mark.parametrize(
    ("schedule", "factors"), [("linear", (1.0, 0.75, 0.0)), ("constant", (1.0, 1.0, 1.0))]
)
def test_learning_rate_follows_its_schedule(schedule: str, factors: tuple[float, ...]) -> None:
    """The rate applied, seen in the weights, and the rate reported."""
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
    rows = unrolls.rows._replace(is_first=torch.tensor(is_first, dtype=torch.bool).unsqueeze(1))
    return unrolls._replace(rows=rows, policy_versions=torch.tensor(versions).unsqueeze(1))


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
    """A mean over steps, not one over batches."""
    trainer, metrics = make_trainer()
    trainer.train_step(Batch(unrolls_of_versions([0] * 4, [0] * 4)), learner_step=1, progress=0)
    trainer.train_step(Batch(unrolls_of_versions([0] * 2, [0] * 2)), learner_step=5, progress=0)
    report = metrics.drain()
    assert report["policy/lag_mean"] == pytest.approx((3 * 1 + 1 * 5) / 4)
    assert report["policy/lag_max"] == 5


def test_lag_is_absent_where_no_step_was_trained() -> None:
    """A mean over nothing is no number."""
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
    """Returns a trainer of a network that only `rng_seed` decides."""
    config = OptimizerConfig(
        optimizer=optimizer, learning_rate=learning_rate, momentum=0.5, max_grad_norm=1.0
    )
    network = with_random_weights(agent.build_network(), rng_seed)
    return Trainer(agent, network, config, Metrics(), num_threads)


def train(trainer: Trainer, agent: VTraceAgent, steps: range) -> None:
    """Makes updates that only their numbers decide."""
    for number in steps:
        state = agent.initial_state(3, torch.device("cpu"))
        unrolls = random_unrolls(agent.spec, 5, 3, state, seeded(number))
        trainer.train_step(Batch(unrolls), learner_step=number, progress=number / 10)


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_resumed_training_is_bit_for_bit_the_same(
    optimizer: Literal["rmsprop", "rmsprop_tf", "adam"], num_threads: int, tmp_path: Path
) -> None:
    """Three updates, a checkpoint, a new process's trainer: the next updates are equal."""
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
    """Runs for the golden check rely on it."""
    agent = vtrace_agent()
    trainer = vtrace_trainer(agent, optimizer, learning_rate=0.0)
    before = {name: x.detach().clone() for name, x in trainer.network.named_parameters()}
    train(trainer, agent, range(3))
    for name, parameter in trainer.network.named_parameters():
        assert torch.equal(parameter, before[name]), name


def test_weights_of_another_network_are_refused() -> None:
    """With an error that the caller can explain, not half loaded in silence."""
    trainer = vtrace_trainer(vtrace_agent(entropy_target=None), "rmsprop")
    other = vtrace_trainer(vtrace_agent(entropy_target=0.5), "rmsprop")
    with pytest.raises(RuntimeError, match="entropy_theta"):
        trainer.load(other.network.state_dict(), other.state_dict())


def test_every_metric_of_an_update_is_documented() -> None:
    """Those of the trainer and those of the agent."""
    agent = vtrace_agent()
    metrics = Metrics()
    trainer = Trainer(agent, agent.build_network(), OptimizerConfig(), metrics)
    train(trainer, agent, range(1))
    report = metrics.drain()
    assert [name for name in report if not is_known(name)] == []
    assert report.keys() >= {"loss/total", "policy/entropy_mean", "policy/lag_mean"}
    assert all(math.isfinite(value) for value in report.values())


class RecordingUnrolls(FreshUnrolls):
    """Remembers what it was told of updates."""

    def __init__(self, batch_size: int, *, queue_batches: int, sample_reuse: int) -> None:
        super().__init__(batch_size, queue_batches=queue_batches, sample_reuse=sample_reuse)
        self.told: list[tuple[Batch, Tensor | None]] = []

    def trained(self, batch: Batch, priorities: Tensor | None) -> None:
        self.told.append((batch, priorities))


class TrainingRun:
    """`run_training` with everything around it, on the calling thread or another."""

    def __init__(self, total_env_steps: int, *, sample_reuse: int = 1) -> None:
        self.trainer, self.metrics = make_trainer()
        self.agent = self.trainer.agent
        self.experience = RecordingUnrolls(2, queue_batches=4, sample_reuse=sample_reuse)
        self.weights = PublishedWeights(Slope(), Slope())
        self.counters = Counters()
        self.check = ZeroLagCheck(self.agent, Slope(), every_steps=1)
        self.num_saves = 0
        self.env_steps_per_update = 0
        self._total_env_steps = total_env_steps

    def put(self, unrolls: Unrolls) -> None:
        """Does what inference would."""
        slots = np.arange(unrolls.num_unrolls)
        self.experience.put(Completed(unrolls, slots, np.ones(len(slots), bool)))

    def save_if_due(self) -> None:
        """Counts; inference, had it run, would have counted steps by now."""
        self.num_saves += 1
        self.counters.add_env_steps(self.env_steps_per_update)

    def run(self) -> None:
        """Trains until it returns."""
        run_training(
            trainer=self.trainer,
            experience=self.experience,
            weights=self.weights,
            check=self.check,
            counters=self.counters,
            total_env_steps=self._total_env_steps,
            save_if_due=self.save_if_due,
            metrics=self.metrics,
            clock=self.metrics.clock("trainer"),
        )


def test_training_ends_when_the_env_steps_are_spent() -> None:
    """Each update takes the oldest batch; what is queued beyond the budget is left."""
    run = TrainingRun(total_env_steps=100)
    run.env_steps_per_update = 40
    for number in range(4):
        run.put(numbered_unrolls([2 * number, 2 * number + 1]))
    run.run()
    assert run.counters.learner_steps == run.num_saves == 3
    assert isinstance(run.agent, SlopeAgent)
    for number, unrolls in enumerate(run.agent.trained_on):
        assert_same(unrolls, numbered_unrolls([2 * number, 2 * number + 1]))
    assert run.experience.report() == {"queue/unrolls": 2}
    assert run.agent.progress == pytest.approx([0, 0.4, 0.8])
    # The learning rate of the last update: 80 of 100 env steps were done.
    assert run.metrics.drain()["optimizer/learning_rate"] == pytest.approx(0.5 * 0.2)


def test_reused_batches_are_trained_on_beside_the_fresh_one() -> None:
    """Each in as many updates as asked for, the fresh one last."""
    run = TrainingRun(total_env_steps=3, sample_reuse=2)
    run.env_steps_per_update = 1
    for number in range(3):
        run.put(numbered_unrolls([2 * number, 2 * number + 1]))
    run.run()
    assert isinstance(run.agent, SlopeAgent)
    trained_on = [unrolls.actions[0].tolist() for unrolls in run.agent.trained_on]
    assert trained_on == [[0, 1], [0, 1, 2, 3], [2, 3, 4, 5]]


def test_experience_is_told_the_priorities_of_each_batch() -> None:
    """Those that the loss gave, in the batch's order; none from an agent without."""
    run = TrainingRun(total_env_steps=2)
    run.env_steps_per_update = 1
    run.put(numbered_unrolls([0, 1, 2, 3]))
    assert isinstance(run.agent, SlopeAgent)
    run.agent.prioritises = True
    run.run()
    told = [priorities.tolist() for _, priorities in run.experience.told if priorities is not None]
    assert told == [[0, 1], [2, 3]]
    assert [batch.unrolls.actions[0].tolist() for batch, _ in run.experience.told] == told


def test_agent_hears_of_each_update_once_it_is_made() -> None:
    """Its target network follows the new weights, not those before."""
    run = TrainingRun(total_env_steps=2)
    run.env_steps_per_update = 1
    run.put(numbered_unrolls([0, 1, 2, 3]))
    run.run()
    assert isinstance(run.agent, SlopeAgent)
    assert [step for step, _ in run.agent.updates] == [1, 2]
    assert torch.equal(run.agent.updates[-1][1], weights_of(run.trainer.network))


def test_frozen_parameters_are_neither_clipped_nor_updated() -> None:
    """Those of a target network."""
    agent = SlopeAgent()
    network = agent.build_network()
    network.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
    trainer = Trainer(agent, network, OptimizerConfig(learning_rate=0.5), Metrics())
    step(trainer)
    assert torch.equal(network.frozen, torch.ones(2))
    assert len(trainer.state_dict()["optimizer"]["param_groups"][0]["params"]) == 1


def test_every_update_is_published_under_its_number() -> None:
    """Inference acts with what was just trained."""
    run = TrainingRun(total_env_steps=2)
    run.env_steps_per_update = 1
    run.put(numbered_unrolls([0, 0, 0, 0]))
    run.run()
    network, version = run.weights.acquire()
    assert version == 2
    assert torch.equal(weights_of(network), weights_of(run.trainer.network))


def test_training_ends_when_the_queue_closes() -> None:
    """Ctrl-C, while the trainer waits for unrolls that will not come."""
    run = TrainingRun(total_env_steps=100)
    run.put(numbered_unrolls([0]))
    training = in_thread(run.run)
    run.experience.close()
    training.result(TIMEOUT_S)
    assert run.counters.learner_steps == 0


def test_complete_run_trains_no_more() -> None:
    """Resumed by mistake, it must not wait for a batch."""
    run = TrainingRun(total_env_steps=100)
    run.counters.add_env_steps(100)
    run.run()
    assert run.counters.learner_steps == 0


def test_zero_lag_deviation_is_reported() -> None:
    """Of the first batch, which the initial weights acted."""
    run = TrainingRun(total_env_steps=1)
    run.env_steps_per_update = 1
    run.put(numbered_unrolls([0, 0]))
    run.run()
    report = run.metrics.drain()
    assert report["policy/max_abs_log_rho_at_zero_lag"] == pytest.approx(0.25)
