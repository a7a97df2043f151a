"""Prioritised replay of sequences: takes blocks from inference, returns sampled batches.

Joins the store of rows, the tree of priorities, and the ratio of samples to inserts.
`insert` is called by the inference thread, `sample` by the thread that loads batches,
`update_priorities` and `state_dict` by the trainer, `report` and `close` by any.
"""

import logging
import math
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from learner.algos.q_learning import MIN_PRIORITY
from learner.concurrency.stopping import Stopped
from learner.config.agent_config import ReplayConfig
from learner.experience.replay.blocks import is_compressible
from learner.experience.replay.memory import GIB
from learner.experience.replay.sample_ratio import SampleRatio
from learner.experience.replay.sequence_store import SequenceStore
from learner.experience.replay.sum_tree import SumTree, check_priorities
from learner.records import Completed, Unrolls, map_tensors
from learner.reporting.merging import Weighted
from seed.errors import ConfigError, expected

_LOG = logging.getLogger(__name__)

# Batches by which inserts may run ahead of samples, so that neither side waits for every
# single step of the other.
TOLERANCE_BATCHES = 2

# Every sequence held can be sampled: priority 0 is only for blocks that head no whole
# sequence.
SMALLEST_PRIORITY = MIN_PRIORITY

# Share of the available memory that a replay may take: batches and networks need some too.
MEMORY_SHARE = 0.9


class ReplayBatch(NamedTuple):
    """Sequences sampled together, and the keys for updating their priorities."""

    unrolls: Unrolls
    """[num_rows, B, ...]."""
    importance_weights: Tensor
    """float32 [B], at most 1: the likelier a sequence was to be drawn, the smaller."""
    heads: np.ndarray
    """int64 [B]: where each sequence begins in the store."""
    generations: np.ndarray
    """int64 [B]: tells the sequence from earlier and later ones at the same place."""


class Replay:
    """Holds sequences and samples them by priority (Schaul et al. 2016, section 3.3).

    How threads share it. `_lock` guards priorities and the claiming of blocks, and is
    held for microseconds; rows are written and read without it, so no copying of rows
    stops inference. What keeps batches whole:

        insert   [claim the oldest blocks, their priorities become 0]  write rows
                 [set priorities of the sequences that are whole now]
        sample   [draw heads, note their generations]  copy rows
                 [if any of these heads has been claimed: draw again]

    [ ] is under the lock. If a copy saw a single row of a later write, the sequence's head
    had been claimed before, as the oldest blocks of a sequence are claimed first; so the
    batch is dropped. That happens to few batches, and soon ends, since `SampleRatio` bounds
    what is inserted before the batch is done.
    """

    def __init__(
        self,
        config: ReplayConfig,
        *,
        num_rows: int,
        period: int,
        batch_size: int,
        num_slots: int,
        initial_priorities: Callable[[Unrolls], Tensor],
        rng_seed: int,
    ) -> None:
        """Allocates almost no memory before the first insert.

        Args:
          config: capacity, ratio, exponents and compression.
          num_rows: rows of a sequence.
          period: rows between the starts of an environment's sequences, and transitions
            of the unrolls inserted.
          batch_size: sequences in a batch.
          num_slots: environments to allow for, see `SequenceStore`.
          initial_priorities: returns float32 [B] of sequences not trained on yet, given
            without observations and initial state. Called by the inference thread.
          rng_seed: seed of the sampling.
        """
        self._config = config
        self._batch_size = batch_size
        self._initial_priorities = initial_priorities
        self._store = SequenceStore(
            capacity=config.replay_capacity,
            num_rows=num_rows,
            period=period,
            num_slots=num_slots,
            compress=config.replay_compression != "none",
        )
        self._room_bytes = math.inf
        self._tree = SumTree(self._store.num_blocks)
        self._ratio = SampleRatio(
            config.samples_per_insert,
            min_size=config.replay_min_size,
            tolerance=TOLERANCE_BATCHES * batch_size,
        )
        self._generator = torch.Generator().manual_seed(rng_seed)
        self._num_sequences = 0
        self._closed = False
        self._lock = threading.Condition()
        # Held while blocks are stored, or copied for a checkpoint. Taken before `_lock`.
        self._storing = threading.Lock()

    def __len__(self) -> int:
        """Number of whole sequences held."""
        return self._num_sequences

    def insert(self, completed: Completed) -> None:
        """Stores blocks, then waits while inserts are ahead of samples. Raises Stopped."""
        unrolls = map_tensors(lambda x: x.cpu(), completed.unrolls)
        with self._storing:
            num_inserted = self._store_blocks(unrolls, completed.slots, completed.follows)
        self._ratio.insert(num_inserted)

    def sample(self, *, pin_memory: bool = False) -> ReplayBatch:
        """Returns copies of sequences drawn by priority, with replacement.

        Waits while samples are ahead of inserts, or while fewer than `replay_min_size` inserts
        were made. Raises Stopped.

        Args:
          pin_memory: whether to put the unrolls into page-locked memory.
        """
        self._ratio.sample(self._batch_size)
        while True:
            heads, generations, weights = self._draw()
            unrolls = self._store.gather(heads, pin_memory=pin_memory)
            with self._lock:
                if (self._store.generations(heads) == generations).all():
                    return ReplayBatch(unrolls, weights, heads, generations)

    def update_priorities(
        self, heads: np.ndarray, generations: np.ndarray, priorities: Tensor
    ) -> None:
        """Sets the priorities of a batch; skips sequences that were overwritten meanwhile.

        Args:
          heads: int64 [B], of a `ReplayBatch`.
          generations: int64 [B], likewise.
          priorities: float32 [B], on any device.

        Raises:
          ValueError: a priority is negative, infinite or not a number.
        """
        weighed = self._weigh(priorities)
        with self._lock:
            is_held = self._store.generations(heads) == generations
            self._tree.set(heads[is_held], weighed[is_held])

    def report(self) -> dict[str, float]:
        """Returns the present metrics; a mean over nothing is absent.

        The mean priority is over priorities to the power of `priority_exponent`, as sampling
        weighs them.
        """
        with self._lock:
            count, total = self._num_sequences, self._tree.total
        report: dict[str, float] = {"replay/sequences": count}
        if count:
            report["replay/priority_mean"] = Weighted(total / count, count)
            report["replay/gib"] = self.held_bytes / GIB
        ratio = self._ratio.samples_per_insert()
        if ratio is not None:
            report["replay/samples_per_insert"] = ratio
        return report

    def close(self) -> None:
        """Wakes all threads that wait."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        self._ratio.close()

    @property
    def held_bytes(self) -> int:
        """Bytes that the blocks held now take."""
        return self._store.held_bytes

    def memory_bytes(self, example: Unrolls) -> int:
        """Returns the bytes of the replay when it is full of unrolls like `example`,
        [any, any, ...]; compressed, it may take far less."""
        return self._store.num_blocks * self._store.bytes_per_block(example)

    def check_memory(self, example: Unrolls, available_bytes: int) -> None:
        """Logs the memory of the full replay, before any of it is allocated.

        How far screens will compress is not known yet. With compression, `insert` therefore
        estimates the full size from `replay_min_size` blocks on, and raises if it will not fit.

        Args:
          example: unrolls [any, any, ...] like those to come.
          available_bytes: as `available_memory_bytes` says.

        Raises:
          ConfigError: the replay takes more than `MEMORY_SHARE` of what is available, or there
            is nothing to compress.
        """
        capacity, needed = f"{self._config.replay_capacity:,}", self.memory_bytes(example)
        self._room_bytes = MEMORY_SHARE * available_bytes
        compression = self._config.replay_compression
        if compression == "none":
            self._check_fits(needed)
            _LOG.info("replay: %s sequences, %.1f GiB", capacity, needed / GIB)
            return
        if not any(is_compressible(x.dtype) for x in example.steps.rows.observations):
            wanted = "none where no observation is uint8"
            raise ConfigError(expected("replay_compression", wanted, compression))
        at_most = "replay: %s sequences, at most %.1f GiB, mostly far less compressed with %s"
        _LOG.info(at_most, capacity, needed / GIB, compression)

    def state_dict(self) -> dict[str, Tensor | int]:
        """Returns copies of everything held, which take as much memory again.

        Inserts wait meanwhile.
        """
        with self._storing:
            positions = np.arange(self._store.num_filled)
            parts = {"store": self._store.state_dict(), "ratio": self._ratio.state_dict()}
            with self._lock:
                state: dict[str, Tensor | int] = {
                    "priorities": torch.from_numpy(self._tree.get(positions)),
                    "rng": self._generator.get_state(),
                }
        return state | {f"{part}/{k}": x for part, held in parts.items() for k, x in held.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from what `state_dict` returned: the next samples are the same.

        Call it before anything is inserted or sampled.

        A state of another capacity, or of another number of environments, is taken over too:
        the newest sequences that there is room for.

        Raises:
          ValueError: the state has sequences of another length or period; nothing has changed.
        """

        def part(name: str) -> dict[str, Any]:
            prefix = f"{name}/"
            return {k.removeprefix(prefix): x for k, x in state.items() if k.startswith(prefix)}

        with self._storing, self._lock:
            order = self._store.load_state_dict(part("store"))
            priorities = state["priorities"].numpy()[order]
            self._tree.set(np.arange(len(priorities)), priorities)
            self._num_sequences = int(np.count_nonzero(priorities))
            self._generator.set_state(state["rng"])
            self._ratio.load_state_dict(part("ratio"), num_held=self._num_sequences)
            self._lock.notify_all()

    def _store_blocks(self, unrolls: Unrolls, slots: np.ndarray, follows: np.ndarray) -> int:
        """Stores blocks; returns how many sequences became whole."""
        with self._lock:
            positions = self._store.claim(slots)
            self._num_sequences -= int(np.count_nonzero(self._tree.get(positions)))
            self._tree.set(positions, np.zeros(len(positions)))
        self._store.write(positions, unrolls)
        self._watch_memory()
        heads = self._store.link(positions, slots, follows)
        if len(heads):
            weighed = self._weigh(self._initial_priorities(self._store.gather_outcomes(heads)))
            with self._lock:
                self._tree.set(heads, weighed)
                self._num_sequences += len(heads)
                self._lock.notify_all()
        return len(heads)

    def _watch_memory(self) -> None:
        """Raises ConfigError if the full replay will not fit, at the compression so far."""
        num_filled = self._store.num_filled
        if self._config.replay_compression != "none" and num_filled >= self._config.replay_min_size:
            self._check_fits(self._store.held_bytes * self._store.num_blocks / num_filled)

    def _check_fits(self, needed: float) -> None:
        if needed > self._room_bytes:
            wanted = f"as many sequences as fit into {self._room_bytes / GIB:,.1f} GiB of memory"
            got = f"{self._config.replay_capacity:,}, which take {needed / GIB:,.1f} GiB"
            raise ConfigError(expected("replay_capacity", wanted, got))

    def _draw(self) -> tuple[np.ndarray, np.ndarray, Tensor]:
        """Returns heads, generations and importance weights of a batch, each [B].

        w_i = (1 / (N p_i))^beta / max_j w_j, where N cancels: (min_j p_j / p_i)^beta.
        """
        with self._lock:
            # The ratio counts inserts, but blocks of actors that left before their sequences
            # were whole may have overwritten all of them.
            self._lock.wait_for(lambda: self._closed or self._num_sequences)
            if self._closed:
                raise Stopped
            heads = self._tree.sample(self._batch_size, self._generator)
            generations = self._store.generations(heads)
            priorities = self._tree.get(heads)
        weights = (priorities.min() / priorities) ** self._config.importance_exponent
        return heads, generations, torch.from_numpy(weights).to(torch.float32)

    def _weigh(self, priorities: Tensor) -> np.ndarray:
        """Returns the weights of sampling, float64 [B], always above 0."""
        values = priorities.detach().cpu().numpy().astype(np.float64)
        # Checked before the power, since any number to the power of 0 is 1.
        check_priorities(values)
        return np.maximum(values, SMALLEST_PRIORITY) ** self._config.priority_exponent
