"""Acting and training in lockstep: a run whose numbers depend on its seed alone.

A run acts while it trains, so which weights act depends on the machine. Here acting waits for
each update that its unrolls make possible. What acts and what trains are the learner's own, on a
thread or in the trainer process.
"""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from actors.envs import make_group
from actors.group import EnvGroup
from learner.acting.batcher import Request
from learner.acting.inference import InferenceEngine
from learner.acting.inference_thread import make_runner
from learner.agents.registry import make_agent
from learner.checkpoint import Checkpoint
from learner.config.agent_config import R2D2Config
from learner.config.presets import PRESETS
from learner.config.run_config import ActorConfig, LearnerConfig, NetworkConfig, RunConfig
from learner.config.run_dir import RunDir
from learner.device.setup import set_up_torch
from learner.records import Completed
from learner.reporting.counters import Counters
from learner.reporting.metrics import Metrics
from learner.training.base import LearnerHooks, Training, TrainingSetup
from learner.training.factory import make_training
from learner.training.ranks import Ranks
from seed.wire import EnvOutputs
from tests.support.pretended_device import make_generator

NUM_ENVS = 8
# Sequences that R2D2 collects before its first update.
MIN_SEQUENCES = 16

TrainIn = Literal["thread", "process"]

# How often the test checks whether the other side has published.
_LOOK_EVERY_S = 1e-3


def lockstep_config(algorithm: str, train_in: TrainIn, rng_seed: int = 7) -> RunConfig:
    """Returns CartPole with all parts of a network: LSTM, frame stack, last action and reward."""
    preset = PRESETS[f"cartpole-{algorithm}"].config
    changes = {"unroll_length": 10, "sample_reuse": 2, "entropy_target": 0.5}
    if algorithm == "r2d2":
        changes = {"target_update_every": 5}
    network = NetworkConfig(
        torso="mlp", hidden_sizes=(32,), lstm_size=16, frame_stack=2, see_last_step=True
    )
    agent = dataclasses.replace(preset.agent, **changes)
    config = dataclasses.replace(preset, agent=agent, network=network, rng_seed=rng_seed)
    return in_lockstep(config, train_in)


def in_lockstep(config: RunConfig, train_in: TrainIn = "thread") -> RunConfig:
    """Returns `config` with batches of one unroll of each environment, and a small replay.

    So the environments' unrolls make exactly one update whenever they complete them.
    """
    changes: dict[str, object] = {"batch_size": NUM_ENVS}
    if isinstance(config.agent, R2D2Config):
        changes["replay"] = dataclasses.replace(
            config.agent.replay,
            replay_capacity=100,
            replay_min_size=MIN_SEQUENCES,
            samples_per_insert=1.0,
        )
    return dataclasses.replace(
        config,
        agent=dataclasses.replace(config.agent, **changes),
        # Schedules follow the env steps that are counted when an update begins.
        optimizer=dataclasses.replace(config.optimizer, learning_rate_schedule="constant"),
        actor=ActorConfig(envs_per_group=NUM_ENVS, num_groups=1),
        learner=LearnerConfig(
            total_env_steps=10_000,
            device="cpu",
            torch_threads=1,
            train_threads=1,
            train_in=train_in,
        ),
    )


class Lockstep:
    """One run; see `losses`."""

    def __init__(
        self,
        config: RunConfig,
        directory: Path,
        device: torch.device | None = None,
        *,
        num_eval_envs: int = 0,
    ) -> None:
        """Makes the environments; nothing is built yet.

        Args:
          config: as `in_lockstep` returns it.
          directory: of the run's files.
          device: of acting and training; None: the CPU.
          num_eval_envs: further environments that act greedily, in the same batches.
        """
        self._config = config
        cpu = set_up_torch("cpu", torch_threads=1, train_threads=1)
        self._device = device or cpu
        self._groups: list[EnvGroup] = [
            make_group(config.env, index=index, num_envs=num_envs, base_seed=3)
            for index, num_envs in enumerate((NUM_ENVS, num_eval_envs))
            if num_envs
        ]
        self._counters, self._metrics = Counters(), Metrics()
        self._failures: list[BaseException] = []
        self._emitted: list[Completed] = []
        hooks = LearnerHooks(lambda: {"rng": {}}, lambda: None, self._failures.append)
        setup = TrainingSetup(config, self._counters.progress, Ranks(), RunDir(directory), hooks)
        self._training: Training = make_training(setup, self._metrics, self._device)

    def losses(self, num_updates: int, checkpoint: Checkpoint | None = None) -> list[float]:
        """Returns `loss/total` of each of the first updates, or of the first after `checkpoint`.

        Saves a checkpoint of its own at the end.
        """
        spec = self._groups[0].spec
        agent = make_agent(spec, self._config)
        self._training.build(spec, agent, checkpoint)
        self._first_version = int(self._training.weights.copies.versions.max())
        self._training.start()
        generator = make_generator(self._device).manual_seed(self._config.rng_seed)
        runner = make_runner(spec, agent, generator, self._config.inference)
        runner.prepare(self._training.weights.copies.networks)
        engine = InferenceEngine(
            spec=spec,
            agent=agent,
            weights=self._training.weights,
            emit=self._emitted.append,
            counters=self._counters,
            metrics=Metrics(),
            runner=runner,
            device=self._device,
        )
        try:
            losses = self._run(engine, num_updates)
        finally:
            self._training.stop()
        self._training.save()
        self._training.close()
        return losses

    def _run(self, engine: InferenceEngine, num_updates: int) -> list[float]:
        clock, answers = Metrics().clock("inference"), []
        losses: list[float] = []
        num_blocks = 0
        outputs, is_start = [group.reset() for group in self._groups], True
        while len(losses) < num_updates:
            engine.process(_requests(outputs, answers.append, is_start=is_start), clock)
            for completed in self._emitted:
                self._training.put(completed)
                num_blocks += NUM_ENVS
                if num_blocks >= self._first_update_after:
                    losses.append(self._loss_of_update(len(losses) + 1))
            self._emitted.clear()
            outputs = [
                group.step(actions) for group, actions in zip(self._groups, answers, strict=True)
            ]
            answers.clear()
            is_start = False
        return losses

    @property
    def _first_update_after(self) -> int:
        """Returns how many unrolls come before the first update."""
        config = self._config.agent
        if not isinstance(config, R2D2Config):
            return NUM_ENVS
        blocks_per_sequence = -(-config.num_rows // config.period)
        return MIN_SEQUENCES + (blocks_per_sequence - 1) * NUM_ENVS

    def _loss_of_update(self, number: int) -> float:
        """Waits until update `number` is published; returns its loss."""
        versions = self._training.weights.copies.versions
        while int(versions.max()) < self._first_version + number:
            if self._failures:
                raise self._failures[0]
            time.sleep(_LOOK_EVERY_S)
        return (self._metrics.drain() | self._training.report())["loss/total"]


def _requests(
    outputs: list[EnvOutputs], reply: Callable[[np.ndarray], None], *, is_start: bool
) -> list[Request]:
    """Returns the requests of one batch: of the training group, and of the one that evaluates."""
    requests, first_slot = [], 0
    for is_eval, output in zip((False, True), outputs, strict=False):
        num_envs = len(output.rewards)
        requests.append(
            Request(
                outputs=output,
                slots=np.arange(first_slot, first_slot + num_envs),
                is_session_start=is_start,
                is_eval=is_eval,
                reply=reply,
                submitted_at=time.monotonic(),
            )
        )
        first_slot += num_envs
    return requests
