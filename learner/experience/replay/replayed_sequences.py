"""Sequences trained on again and again, the surprising ones more often (R2D2).

See `learner.experience.base.Experience` for who calls what.
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
    """Blocks of rows go into the replay, sampled batches come out of a loader."""

    def __init__(
        self,
        config: R2D2Config,
        context: ExperienceContext,
        *,
        initial_priorities: Callable[[Unrolls], Tensor],
        available_bytes: int | None = None,
    ) -> None:
        """Says what memory the replay will take.

        Args:
          config: lengths of sequences, sizes of batches and of the replay.
          context: an example row, the device of batches, the seed of sampling. Environments
            beyond its `num_slots` take the room of their unfinished sequences out of the
            capacity.
          initial_priorities: returns float32 [B] of sequences not trained on yet; see
            `Replay`.
          available_bytes: of memory; None: what the machine has left.

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
        """Goes on with the replay saved there, as far as it can be used.

        A run is worth more than its replay, which fills again: what is missing, damaged or
        of sequences of another length is done without, and that is said.
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
        """Returns copies of all that the replay holds, if checkpoints are to have it."""
        if not self._config.checkpoint_replay or not self._fits_checkpoint():
            return None
        state = self._replay.state_dict()
        # As doubles: a ratio rounded to a float would not be the one that was set.
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
