"""The side of the learner that acts: inference on a thread of its own.

Built once the environment's spec is known. Runs, evaluations, loads and tests act through it,
so what the golden checks check is what a run does.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from learner.acting.batcher import Batcher
from learner.acting.graph_runner import GraphRunner, PaddedRunner, PlainRunner
from learner.acting.inference import InferenceEngine, StepCounter, run_inference
from learner.acting.observers import StepObserver
from learner.agents.base import Agent
from learner.agents.steps import example_step
from learner.concurrency.priority import SHARED_CORE_NICENESS
from learner.concurrency.threads import start_thread
from learner.config.run_config import InferenceConfig
from learner.config.torchrun import Place
from learner.device.recorders import make_recorder
from learner.device.streams import make_streams
from learner.records import Completed, tensors_of
from learner.reporting.metrics import Metrics
from learner.weights import PublishedWeights
from seed.specs import EnvSpec


class TrainingEnd(Protocol):
    """What acting needs of training, wherever that runs; or of what stands in for it."""

    weights: PublishedWeights
    """The newest version acts."""

    def put(self, completed: Completed) -> None:
        """Takes unrolls; may block, which pauses acting. Raises Stopped."""
        ...

    def stop(self) -> None:
        """Takes no more: a thread that waits in `put` is told by Stopped."""
        ...


class InferenceThread:
    """Serves the batcher's batches from `start` until the batcher closes and training stops."""

    def __init__(
        self,
        *,
        spec: EnvSpec,
        agent: Agent,
        config: InferenceConfig,
        training: TrainingEnd,
        batcher: Batcher,
        counters: StepCounter,
        metrics: Metrics,
        device: torch.device,
        rng_seed: int,
        on_failure: Callable[[BaseException], None],
        place: Place | None = None,
        observers: Sequence[StepObserver] = (),
    ) -> None:
        """Builds what acts; no thread runs yet.

        Args:
          spec: of the environment.
          agent: the algorithm.
          config: how batches go through it.
          training: its weights act, and it gets the completed unrolls.
          batcher: gives the batches.
          counters: takes note of steps and games.
          metrics: takes what is measured.
          device: of the weights.
          rng_seed: of action sampling.
          on_failure: takes what the thread raised, on that thread.
          place: of this learner among those that train together.
          observers: see every step; closed by `join`.
        """
        place = place or Place()
        self._batcher = batcher
        self._training = training
        self._metrics = metrics
        self._on_failure = on_failure
        self._observers = observers
        self._streams = make_streams(device)
        # Ranks lie behind all seeds that a run can have.
        self._generator = torch.Generator(device).manual_seed(rng_seed + (place.rank << 31))
        self._runner = make_runner(spec, agent, self._generator, config)
        self._engine = InferenceEngine(
            spec=spec,
            agent=agent,
            weights=training.weights,
            emit=self._emit,
            counters=counters,
            metrics=metrics,
            runner=self._runner,
            device=device,
            place=place,
            observers=observers,
        )

    def start(self) -> None:
        """Starts the thread."""
        # On cores that they share the trainer goes first, as the others wait for it: acting
        # catches up while it waits for unrolls.
        self._thread = start_thread(
            "inference", self._run, self._on_failure, niceness=SHARED_CORE_NICENESS
        )

    def stop(self) -> None:
        """Ends the thread's waiting for training; its batcher must be closed already."""
        self._training.stop()

    def join(self) -> None:
        """Waits for the thread, after `stop`."""
        with contextlib.ExitStack() as stack:
            for observer in self._observers:
                stack.callback(observer.close)
            self._thread.join()

    def state_dict(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps of it."""
        return {"rng": {"inference": self._generator.get_state()}}

    def load_rng(self, state: Tensor) -> None:
        """Goes on with the sampling noise of a checkpoint; call it before `start`."""
        self._generator.set_state(state)

    def _run(self) -> None:
        with self._streams.acting():
            self._runner.prepare(self._training.weights.copies.networks)
            run_inference(self._batcher, self._engine, self._metrics)

    def _emit(self, completed: Completed) -> None:
        self._streams.give_to_training(tensors_of(completed.unrolls))
        self._training.put(completed)


def make_runner(
    spec: EnvSpec, agent: Agent, generator: torch.Generator, config: InferenceConfig
) -> GraphRunner:
    """Returns how batches go through the agent on the generator's device, as configured."""
    is_on_gpu = generator.device.type == "cuda"
    if config.cuda_graphs == "off" or (config.cuda_graphs == "auto" and not is_on_gpu):
        return PlainRunner(agent, generator)
    return PaddedRunner(
        agent,
        generator,
        make_recorder(generator),
        example=example_step(spec, agent),
        max_size=config.max_inference_batch,
    )
