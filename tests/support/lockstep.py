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
from learner.config.agent_config import R2D2Config, ReplayConfig
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

NUM_ENVS = 8
# Sequences that R2D2 collects before its first update.
MIN_SEQUENCES = 16

TrainIn = Literal["thread", "process"]

# How often the test checks whether the other side has published.
_LOOK_EVERY_S = 1e-3


def lockstep_config(algorithm: str, train_in: TrainIn, rng_seed: int = 7) -> RunConfig:
    """Returns CartPole with all parts of a network: LSTM, frame stack, last action and reward.

    Whenever the environments complete their unrolls, these make exactly one update.
    """
    preset = PRESETS[f"cartpole-{algorithm}"].config
    if algorithm == "vtrace":
        changes = {"unroll_length": 10, "sample_reuse": 2, "entropy_target": 0.5}
    else:
        replay = ReplayConfig(
            replay_capacity=100, replay_min_size=MIN_SEQUENCES, samples_per_insert=1.0
        )
        changes = {"target_update_every": 5, "replay": replay}
    return dataclasses.replace(
        preset,
        agent=dataclasses.replace(preset.agent, batch_size=NUM_ENVS, **changes),
        # Schedules follow the env steps that are counted when an update begins.
        optimizer=dataclasses.replace(preset.optimizer, learning_rate_schedule="constant"),
        network=NetworkConfig(
            torso="mlp", hidden_sizes=(32,), lstm_size=16, frame_stack=2, see_last_step=True
        ),
        actor=ActorConfig(envs_per_group=NUM_ENVS, num_groups=1),
        learner=LearnerConfig(
            total_env_steps=10_000,
            device="cpu",
            torch_threads=1,
            train_threads=1,
            train_in=train_in,
        ),
        rng_seed=rng_seed,
    )


class Lockstep:
    """One run; see `losses`."""

    def __init__(self, config: RunConfig, directory: Path) -> None:
        self._config = config
        self._device = set_up_torch("cpu", torch_threads=1, train_threads=1)
        self._group: EnvGroup = make_group(config.env, index=0, num_envs=NUM_ENVS, base_seed=3)
        self._counters, self._metrics = Counters(), Metrics()
        self._failures: list[BaseException] = []
        self._emitted: list[Completed] = []
        hooks = LearnerHooks(lambda: {"rng": {}}, lambda: None, self._failures.append)
        setup = TrainingSetup(config, self._counters.progress, Ranks(), RunDir(directory), hooks)
        self._training: Training = make_training(setup, self._metrics, self._device)

    def losses(self, num_updates: int) -> list[float]:
        """Returns `loss/total` of each of the first updates."""
        agent = make_agent(self._group.spec, self._config)
        self._training.build(self._group.spec, agent, None)
        self._training.start()
        generator = torch.Generator().manual_seed(self._config.rng_seed)
        engine = InferenceEngine(
            spec=self._group.spec,
            agent=agent,
            weights=self._training.weights,
            emit=self._emitted.append,
            counters=self._counters,
            metrics=Metrics(),
            runner=make_runner(self._group.spec, agent, generator, self._config.inference),
            device=self._device,
        )
        try:
            return self._run(engine, num_updates)
        finally:
            self._training.stop()
            self._training.close()

    def _run(self, engine: InferenceEngine, num_updates: int) -> list[float]:
        clock, answers = Metrics().clock("inference"), []
        losses: list[float] = []
        num_blocks = 0
        outputs, is_start = self._group.reset(), True
        while len(losses) < num_updates:
            engine.process([_request(outputs, answers.append, is_start=is_start)], clock)
            for completed in self._emitted:
                self._training.put(completed)
                num_blocks += NUM_ENVS
                if num_blocks >= self._first_update_after:
                    losses.append(self._loss_of_update(len(losses) + 1))
            self._emitted.clear()
            outputs, is_start = self._group.step(answers.pop()), False
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
        while int(versions.max()) < number:
            if self._failures:
                raise self._failures[0]
            time.sleep(_LOOK_EVERY_S)
        return (self._metrics.drain() | self._training.report())["loss/total"]


def _request(
    outputs: EnvOutputs, reply: Callable[[np.ndarray], None], *, is_start: bool
) -> Request:
    return Request(
        outputs=outputs,
        slots=np.arange(NUM_ENVS),
        is_session_start=is_start,
        is_eval=False,
        reply=reply,
        submitted_at=time.monotonic(),
    )
