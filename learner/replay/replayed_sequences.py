"""Sequences trained on again and again, the surprising ones more often (R2D2).

See `learner.experience.Experience` for who calls what.
"""

import logging
from collections.abc import Callable

import torch
from torch import Tensor

from learner.agents.r2d2 import R2D2Agent
from learner.experience import Batch
from learner.records import Unrolls
from learner.replay.loader import BatchLoader
from learner.replay.memory import GIB, available_memory_bytes
from learner.replay.replay import Replay
from learner.unrolls import Completed
from seed.agent_config import R2D2Config

_LOG = logging.getLogger(__name__)


class ReplayedSequences:
    """Blocks of rows go into the replay, sampled batches come out of a loader."""

    def __init__(
        self,
        agent: R2D2Agent,
        config: R2D2Config,
        *,
        example: Unrolls,
        num_slots: int,
        device: torch.device,
        rng_seed: int,
        on_failure: Callable[[BaseException], None],
        available_bytes: int | None = None,
    ) -> None:
        """Says what memory the replay will take.

        Args:
          agent: gives sequences their first priorities.
          config: see there.
          example: a row [1, 1, ...] as acting stores it.
          num_slots: environments to expect: those of one actor. More take the room of
            their unfinished sequences out of the capacity.
          device: where batches are wanted.
          rng_seed: of the sampling.
          on_failure: takes what the loading thread raised.
          available_bytes: of memory; None: look.

        Raises:
          ConfigError: the replay would not fit into memory.
        """
        self._config = config.replay
        self._replay = Replay(
            config.replay,
            num_rows=config.num_rows,
            period=config.period,
            batch_size=config.batch_size,
            num_slots=num_slots,
            initial_priorities=agent.initial_priorities,
            rng_seed=rng_seed,
        )
        if available_bytes is None:
            available_bytes = available_memory_bytes()
        self._replay.check_memory(example, available_bytes)
        self._is_saved = self._fits_checkpoint(self._replay.memory_bytes(example))
        self._loader = BatchLoader(self._replay, device, on_failure=on_failure)
        self._newest: Unrolls | None = None

    def restore(self, saved: dict[str, Tensor] | None) -> None:
        """Goes on with what `checkpoint` returned; None: starts empty, and says so."""
        if saved is None:
            _LOG.warning(
                "the checkpoint has no replay: training goes on after %d new sequences",
                self._config.replay_min_size,
            )
            return
        state = {name: int(x) if x.ndim == 0 else x for name, x in saved.items()}
        self._replay.load_state_dict(state)
        _LOG.info("replay: %d sequences restored", len(self._replay))

    def start(self) -> None:
        self._loader.start()

    def put(self, completed: Completed) -> None:
        self._newest = completed.unrolls
        self._replay.insert(completed)

    def next_batch(self) -> Batch:
        sampled = self._loader.get()
        newest, self._newest = self._newest, None
        return Batch(sampled.unrolls, newest, sampled.importance_weights, source=sampled)

    def trained(self, batch: Batch, priorities: Tensor | None) -> None:
        assert priorities is not None, "the loss of a replayed batch tells its priorities"
        sampled = batch.source
        self._replay.update_priorities(sampled.heads, sampled.generations, priorities)

    def report(self) -> dict[str, float]:
        return self._replay.report()

    def checkpoint(self) -> dict[str, Tensor] | None:
        """Returns copies of all that the replay holds, if checkpoints are to have it."""
        if not self._is_saved:
            return None
        state = self._replay.state_dict()
        return {k: x if isinstance(x, Tensor) else torch.tensor(x) for k, x in state.items()}

    def close(self) -> None:
        self._loader.close()

    def _fits_checkpoint(self, num_bytes: int) -> bool:
        limit_gib = self._config.checkpoint_replay_limit_gib
        if not self._config.checkpoint_replay:
            return False
        if num_bytes <= limit_gib * GIB:
            return True
        _LOG.info(
            "replay: left out of checkpoints, being over checkpoint_replay_limit_gib (%g GiB)",
            limit_gib,
        )
        return False
