"""Sequences trained on again and again, the surprising ones more often (R2D2).

See `learner.experience.base` for the threads that call each method.
"""

import logging
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from learner.checkpoint import load_replay
from learner.config.agent_config import R2D2Config
from learner.experience.base import Experience, ExperienceContext, Sample
from learner.experience.replay.loader import BatchLoader
from learner.experience.replay.memory import GIB, available_memory_bytes
from learner.experience.replay.replay import Replay
from learner.records import Batch, Completed, Unrolls
from seed.errors import CheckpointError

_LOG = logging.getLogger(__name__)


class ReplayedSequences(Experience):
    """Puts blocks of rows into the replay, and returns batches that a loader samples."""

    def __init__(
        self,
        config: R2D2Config,
        context: ExperienceContext,
        *,
        initial_priorities: Callable[[Unrolls], Tensor],
        available_bytes: int | None = None,
    ) -> None:
        """Logs how much memory the replay will take.

        Args:
          config: lengths of sequences, sizes of batches and of the replay.
          context: an example row, the device of batches, the seed of sampling. The unfinished
            sequences of environments beyond its `num_slots` reduce the capacity.
          initial_priorities: returns float32 [B] of sequences not trained on yet; see
            `Replay`.
          available_bytes: memory that the replay may use; None: what the machine has left.

        Raises:
          ConfigError: the replay would not fit into memory.
        """
        self._config = config.replay
        self._replay = Replay(
            config.replay,
            num_rows=config.num_rows,
            period=config.period,
            batch_size=config.batch_size,
            num_slots=context.num_slots,
            initial_priorities=initial_priorities,
            rng_seed=context.rng_seed,
        )
        if available_bytes is None:
            available_bytes = available_memory_bytes()
        self._replay.check_memory(context.example, available_bytes)
        self._loader = BatchLoader(self._replay, context.device, on_failure=context.on_failure)
        self._newest: Unrolls | None = None
        self._was_left_out = False

    def restore(self, checkpoint: Path) -> None:
        """Loads the checkpoint's replay, if it can be used.

        A run is worth more than its replay, which fills again. If the replay is missing, damaged
        or has sequences of another length, the run starts with an empty one and logs why.
        """
        try:
            saved = load_replay(checkpoint)
            if saved is not None:
                state = {name: x.item() if x.ndim == 0 else x for name, x in saved.items()}
                self._replay.load_state_dict(state)
        except (CheckpointError, ValueError) as error:
            self._say_empty(f"the checkpoint's replay cannot be used ({error})")
        else:
            if saved is None:
                self._say_empty("the checkpoint has no replay")
            else:
                _LOG.info("replay: %d sequences restored", len(self._replay))

    def start(self) -> None:
        self._loader.start()

    def put(self, completed: Completed) -> None:
        self._newest = completed.unrolls
        self._replay.insert(completed)

    def next_batch(self) -> Sample:
        sampled = self._loader.get()
        newest, self._newest = self._newest, None
        batch = Batch(sampled.unrolls, sampled.importance_weights)
        return Sample(batch, newest, source=sampled)

    def trained(self, sample: Sample, priorities: Tensor | None) -> None:
        assert priorities is not None, "the loss of a replayed batch tells its priorities"
        sampled = sample.source
        self._replay.update_priorities(sampled.heads, sampled.generations, priorities)

    def report(self) -> dict[str, float]:
        return self._replay.report()

    def checkpoint(self) -> dict[str, Tensor] | None:
        """Returns copies of all that the replay holds, if checkpoints hold the replay."""
        if not self._config.checkpoint_replay or not self._fits_checkpoint():
            return None
        state = self._replay.state_dict()
        # In float64: a ratio rounded to float32 would differ from the configured one.
        return {
            name: x
            if isinstance(x, Tensor)
            else torch.tensor(x, dtype=torch.float64 if isinstance(x, float) else torch.int64)
            for name, x in state.items()
        }

    def close(self) -> None:
        self._loader.close()

    def _fits_checkpoint(self) -> bool:
        limit_gib = self._config.checkpoint_replay_limit_gib
        fits = self._replay.held_bytes <= limit_gib * GIB
        if not fits and not self._was_left_out:
            _LOG.warning(
                "replay: left out of checkpoints, being over checkpoint_replay_limit_gib (%g GiB)",
                limit_gib,
            )
        self._was_left_out = not fits
        return fits

    def _say_empty(self, why: str) -> None:
        num_sequences = self._config.replay_min_size
        _LOG.warning("%s: training goes on after %d new sequences", why, num_sequences)
