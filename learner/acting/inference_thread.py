"""The side of the learner that acts: inference on a thread of its own.

Built once the environment's spec is known, beside `Training`, which it feeds and
whose weights it acts with.
"""

from collections.abc import Callable
from typing import Any, Protocol

import torch

from learner.acting.batcher import Batcher
from learner.acting.graph_runner import Act, PaddedAct, PlainAct
from learner.acting.inference import InferenceEngine, run_inference
from learner.agents.base import Agent
from learner.agents.steps import example_step
from learner.checkpoint import Checkpoint
from learner.concurrency.priority import SHARED_CORE_NICENESS
from learner.concurrency.threads import start_thread
from learner.config.run_config import InferenceConfig, RunConfig
from learner.config.torchrun import Place
from learner.device.recorders import make_recorder
from learner.device.streams import make_streams
from learner.records import Completed, tensors_of
from learner.reporting.counters import Counters
from learner.reporting.metrics import Metrics
from learner.weights import PublishedWeights
from seed.specs import EnvSpec


class TrainingSide(Protocol):
    """What acting needs of training, wherever that runs."""

    weights: PublishedWeights

    def put(self, completed: Completed) -> None:
        """Takes unrolls; may block, which pauses acting. Raises Stopped."""
        ...


class Acting:
    """Serves the batcher's batches from `start` until it and the training close."""

    def __init__(
        self,
        *,
        spec: EnvSpec,
        agent: Agent,
        config: RunConfig,
        training: TrainingSide,
        batcher: Batcher,
        counters: Counters,
        place: Place,
        metrics: Metrics,
        device: torch.device,
        checkpoint: Checkpoint | None,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._batcher = batcher
        self._training = training
        self._metrics = metrics
        self._on_failure = on_failure
        self._streams = make_streams(device)
        self._networks = training.weights.copies.networks
        # Behind all seeds that a run can have.
        rng_seed = config.rng_seed + (place.rank << 31)
        self._generator = torch.Generator(device).manual_seed(rng_seed)
        if checkpoint is not None and not place.rank:
            self._generator.set_state(checkpoint.state["rng"]["inference"])
        self._act = make_act(spec, agent, self._generator, config.inference)
        self._engine = InferenceEngine(
            spec=spec,
            agent=agent,
            weights=training.weights,
            emit=self._emit,
            counters=counters,
            metrics=metrics,
            device=device,
            generator=self._generator,
            place=place,
            act=self._act,
        )

    def start(self) -> None:
        """Starts the thread."""
        # On cores that they share the trainer goes first, as it is what the others wait
        # for: acting catches up while it waits for unrolls.
        self._thread = start_thread(
            "inference", self._run, self._on_failure, niceness=SHARED_CORE_NICENESS
        )

    def join(self) -> None:
        """Waits for the thread; batcher and training must be closed already."""
        self._thread.join()

    def state_dict(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps of it."""
        return {"rng": {"inference": self._generator.get_state()}}

    def _run(self) -> None:
        with self._streams.acting():
            self._act.prepare(self._networks)
            run_inference(self._batcher, self._engine, self._metrics)

    def _emit(self, completed: Completed) -> None:
        self._streams.give_to_training(tensors_of(completed.unrolls))
        self._training.put(completed)


def make_act(
    spec: EnvSpec, agent: Agent, generator: torch.Generator, config: InferenceConfig
) -> Act:
    """Returns how batches go through the agent on the generator's device, as configured."""
    is_on_gpu = generator.device.type == "cuda"
    if config.cuda_graphs == "off" or (config.cuda_graphs == "auto" and not is_on_gpu):
        return PlainAct(agent, generator)
    return PaddedAct(
        agent,
        generator,
        make_recorder(generator),
        example=example_step(spec, agent, agent.build_network()),
        max_size=config.max_inference_batch,
    )
