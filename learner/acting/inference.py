"""One batched act: read the slots, run the network, answer, then store the step.

`InferenceEngine.process` runs on the inference thread, which owns the slots, the
open unrolls and the network it acts with. `run_inference` is that thread's loop.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from learner.acting.batcher import Batcher, Request
from learner.acting.graph_runner import GraphRunner
from learner.acting.observers import ObservedStep, StepObserver
from learner.acting.rows import row_indices
from learner.acting.slots import SlotStates
from learner.acting.unrolls import UnrollStore
from learner.agents.base import ActInput, Agent
from learner.agents.steps import make_step
from learner.concurrency.stopping import Stopped
from learner.config.torchrun import Place
from learner.records import Completed, Rows, Unrolls, index_unrolls
from learner.reporting.metrics import Metrics, ThreadClock
from learner.weights import PublishedWeights
from seed.specs import EnvSpec
from seed.wire import Episode

_LOG = logging.getLogger(__name__)


def run_inference(batcher: Batcher, engine: "InferenceEngine", metrics: Metrics) -> None:
    """Acts on one batch after another until the batcher or the experience closes."""
    clock = metrics.clock("inference")
    try:
        while True:
            clock.switch("wait")
            batch = batcher.next_batch()
            fill_ratio = min(sum(request.num_envs for request in batch) / batcher.full_size, 1.0)
            metrics.mean("inference/fill_ratio", fill_ratio)
            engine.process(batch, clock)
    except Stopped:
        return


class StepCounter(Protocol):
    """Counts the environments' steps and games; called by the inference thread."""

    def add_env_steps(self, count: int) -> None:
        """Counts actions applied by training actors."""
        ...

    def add_episode(self, episode: Episode, *, is_eval: bool) -> None:
        """Counts a full game."""
        ...


class InferenceEngine:
    """Acts for all connected environments and turns their steps into unrolls."""

    def __init__(
        self,
        *,
        spec: EnvSpec,
        agent: Agent,
        weights: PublishedWeights,
        emit: Callable[[Completed], None],
        counters: StepCounter,
        metrics: Metrics,
        runner: GraphRunner,
        device: torch.device,
        place: Place | None = None,
        observers: Sequence[StepObserver] = (),
    ) -> None:
        """Allocates no memory for environments yet.

        Args:
          spec: of the environment.
          agent: the algorithm.
          weights: the newest version acts.
          emit: takes completed unrolls; may block, which pauses acting.
          counters: counts steps and games.
          metrics: gets the measured values.
          runner: runs batches through the agent.
          device: of the networks.
          place: of this learner among the learners that train together.
          observers: see every step once its answers are sent.
        """
        self._place = place or Place()
        self._runner = runner
        self._weights = weights
        self._emit = emit
        self._counters = counters
        self._metrics = metrics
        self._device = device
        self._observers = observers
        self._warned_of_failures = False
        self._staging = Staging(spec, device)
        self._slots = SlotStates(agent.initial_state, device)
        self._unrolls = UnrollStore(agent.unroll_length, device, block_size=agent.batch_size)

    def process(self, batch: list[Request], clock: ThreadClock) -> None:
        """Answers every request of `batch`, then appends its steps to the unrolls."""
        clock.switch("forward")
        slots = np.concatenate([request.slots for request in batch])
        self._make_room(int(slots.max()) + 1)
        is_eval = _eval_mask(batch)
        on_device = row_indices(slots, self._device)
        inputs = self._gather(batch, on_device, is_eval)
        network, version = self._weights.acquire()
        with torch.inference_mode():
            output = self._runner(network, inputs)
            self._slots.scatter(on_device, output.state, output.actions)
            actions = output.actions.cpu().numpy()
        self._answer(batch, actions)
        clock.switch("store")
        self._count(batch)
        for request in batch:
            if request.is_session_start:
                self._unrolls.begin(request.slots)
        step = make_step(inputs.rows, output, inputs.state, version)
        for observer in self._observers:
            observer.observe(ObservedStep(slots, is_eval, step.steps, output.values))
        self._store(slots, step, is_eval, clock)

    def _gather(self, batch: list[Request], slots: Tensor, is_eval: np.ndarray | None) -> ActInput:
        """Returns the newest rows [1, N], and the contents of `slots` for them, on the device."""
        state, last_actions = self._slots.gather(slots)
        return ActInput(
            rows=self._staging.load(batch)._replace(previous_actions=last_actions.unsqueeze(0)),
            state=state,
            # The ranks' slots are interleaved, so every environment of the run has its own number.
            slots=slots * self._place.size + self._place.rank,
            greedy=None if is_eval is None else torch.from_numpy(is_eval).to(self._device),
        )

    def _make_room(self, num_slots: int) -> None:
        # The capacity doubles, so that a growing fleet costs few reallocations.
        capacity = 1 << (num_slots - 1).bit_length()
        self._slots.grow(capacity)
        self._unrolls.grow(capacity)

    def _answer(self, batch: list[Request], actions: np.ndarray) -> None:
        start, now = 0, time.monotonic()
        for request in batch:
            request.reply(actions[start : start + request.num_envs])
            start += request.num_envs
        latencies_ms = np.array([now - request.submitted_at for request in batch]) * 1000
        self._metrics.percentiles("inference/latency_ms", latencies_ms)
        self._metrics.mean("inference/batch_size_mean", start)

    def _count(self, batch: list[Request]) -> None:
        rewards = []
        for request in batch:
            outputs = request.outputs
            if not request.is_eval:
                rewards.append(outputs.rewards[~outputs.is_first])
                self._counters.add_env_steps(len(rewards[-1]))
            if outputs.failures:
                self._count_failures(outputs.failures)
            for episode in outputs.episodes:
                self._counters.add_episode(episode, is_eval=request.is_eval)
        self._report_rewards(rewards)

    def _report_rewards(self, rewards: list[np.ndarray]) -> None:
        received = np.concatenate(rewards) if rewards else np.empty(0)
        if received.size:
            self._metrics.min("reward/min", float(received.min()))
            self._metrics.max("reward/max", float(received.max()))

    def _count_failures(self, failures: int) -> None:
        self._metrics.sum("envs/failed", failures)
        if not self._warned_of_failures:
            self._warned_of_failures = True
            _LOG.warning(
                "an environment failed and the run goes on; its actor's log says which one, and "
                "why (envs/failed counts them from now on)"
            )

    def _store(
        self, slots: np.ndarray, step: Unrolls, is_eval: np.ndarray | None, clock: ThreadClock
    ) -> None:
        if is_eval is not None:
            kept = np.flatnonzero(~is_eval)
            if not len(kept):
                return
            slots, step = slots[kept], index_unrolls(step, row_indices(kept, self._device))
        completed = self._unrolls.append(slots, step)
        if completed is not None:
            clock.switch("blocked")
            self._emit(completed)


def _eval_mask(batch: list[Request]) -> np.ndarray | None:
    """Returns bool [N]: environments that act greedily and store nothing; None for none."""
    if not any(request.is_eval for request in batch):
        return None
    return np.repeat([r.is_eval for r in batch], [r.num_envs for r in batch])


class Staging:
    """Host buffers in which a batch is assembled, pinned if the device is a GPU.

    They are reused: before the next batch is loaded, the actions of the last batch are read
    back, and that waits for the device.
    """

    def __init__(self, spec: EnvSpec, device: torch.device) -> None:
        self._spec = spec
        self._device = device
        self._capacity = 0
        self._leaves: tuple[Tensor, ...] = ()
        self._rewards = torch.empty(0)
        self._flags = torch.empty(0)
        self._no_actions = torch.empty(0)
        # NumPy views of the same memory, kept because making a view for each batch costs time.
        self._leaf_arrays: tuple[np.ndarray, ...] = ()
        self._reward_array = self._rewards.numpy()
        self._flag_array = self._flags.numpy()

    def load(self, batch: list[Request]) -> Rows:
        """Returns the newest row of every environment on the device, [1, N, ...].

        The caller fills in the previous actions, which are already on the device.
        """
        num_envs = sum(request.num_envs for request in batch)
        if num_envs > self._capacity:
            self._allocate(num_envs)
        start = 0
        for request in batch:
            stop, outputs = start + request.num_envs, request.outputs
            for held, array in zip(self._leaf_arrays, outputs.observations, strict=True):
                held[start:stop] = array
            self._reward_array[start:stop] = outputs.rewards
            self._flag_array[0, start:stop] = outputs.is_first
            self._flag_array[1, start:stop] = outputs.terminated
            self._flag_array[2, start:stop] = outputs.truncated
            start = stop
        is_first, terminated, truncated = self._move(self._flags[:, None, :num_envs])
        return Rows(
            observations=tuple(self._move(leaf[None, :num_envs]) for leaf in self._leaves),
            rewards=self._move(self._rewards[None, :num_envs]),
            previous_actions=self._no_actions,
            is_first=is_first,
            terminated=terminated,
            truncated=truncated,
        )

    def _move(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._device, non_blocking=True)

    def _allocate(self, capacity: int) -> None:
        pin = self._device.type == "cuda"

        def empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
            return torch.empty(shape, dtype=dtype, pin_memory=pin)

        self._capacity = capacity
        self._leaves = tuple(
            empty((capacity, *leaf.shape), getattr(torch, leaf.dtype))
            for leaf in self._spec.observations
        )
        self._rewards = empty((capacity,), torch.float32)
        self._flags = empty((3, capacity), torch.bool)
        self._leaf_arrays = tuple(leaf.numpy() for leaf in self._leaves)
        self._reward_array = self._rewards.numpy()
        self._flag_array = self._flags.numpy()
