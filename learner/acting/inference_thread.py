"""The acting side of the learner: inference on a thread of its own.

Built once the environment's spec is known. Runs, evaluations, load tests and tests all act
through it, so the golden checks check the code of a run.
"""

import contextlib
import logging
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

_LOG = logging.getLogger(__name__)


class TrainingEnd(Protocol):
    """What acting needs from training, which may be another process, or from its stand-in."""

    weights: PublishedWeights
    """The weights; the newest version acts."""

    def put(self, completed: Completed) -> None:
        """Takes unrolls; may block, which pauses acting. Raises Stopped."""
        ...

    def stop(self) -> None:
        """Takes no more unrolls. A thread that waits in `put` gets Stopped."""
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
        """Builds the acting parts; no thread runs yet.

        Args:
          spec: of the environment.
          agent: the algorithm.
          config: how batches are formed and padded.
          training: gives the weights and gets the completed unrolls.
          batcher: gives the batches.
          counters: counts steps and games.
          metrics: gets the measured values.
          device: of the weights.
          rng_seed: of action sampling.
          on_failure: called with the exception that ends the thread, on that thread.
          place: of this learner among the learners that train together.
          observers: see every step; closed by `join`.
        """
        place = place or Place()
        self._batcher = batcher
        self._training = training
        self._metrics = metrics
        self._on_failure = on_failure
        self._observers = observers
        self._streams = make_streams(device)
        # The rank is added above the 31 bits of a run's seed, so that ranks never share a seed.
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
        # Where acting and training share cores, the trainer goes first, as the others wait for it.
        # Acting catches up while the trainer waits for unrolls.
        self._thread = start_thread(
            "inference", self._run, self._on_failure, niceness=SHARED_CORE_NICENESS
        )

    def stop(self) -> None:
        """Wakes the thread if it waits for training; its batcher must be closed already."""
        self._training.stop()

    def join(self) -> None:
        """Waits for the thread, after `stop`."""
        with contextlib.ExitStack() as stack:
            for observer in self._observers:
                stack.callback(observer.close)
            self._thread.join()

    def state_dict(self) -> dict[str, Any]:
        """Returns the part of a checkpoint that belongs to acting."""
        return {"rng": {"inference": self._generator.get_state()}}

    def load_rng(self, state: Tensor) -> None:
        """Restores the random state of a checkpoint; call it before `start`.

        The state of another kind of device says nothing here: sampling goes on from the seed.
        """
        if state.numel() == self._generator.get_state().numel():
            self._generator.set_state(state)
        else:
            _LOG.warning(
                "the checkpoint's run acted on another kind of device: actions are now sampled "
                "from the run's seed on, not from where the run was"
            )

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
    """Returns the runner that `config` asks for, on the generator's device."""
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
