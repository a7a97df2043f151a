"""The interface of training for the rest of the learner.

`local.py` trains on threads of this process, `process/` in a process of its own.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from learner.agents.base import Agent
from learner.checkpoint import Checkpoint
from learner.checkpoints.best import Score
from learner.config.run_config import RunConfig
from learner.config.run_dir import RunDir
from learner.records import Completed
from learner.reporting.progress import Progress
from learner.training.ranks import Ranks
from learner.weights import PublishedWeights
from seed.specs import EnvSpec


class LearnerHooks(NamedTuple):
    """The functions by which training calls the learner around it."""

    acting_state: Callable[[], dict[str, Any]]
    """Returns acting's part of a checkpoint; called by the trainer thread."""
    on_finished: Callable[[], None]
    """Called when the env step budget is spent."""
    on_failure: Callable[[BaseException], None]
    """Called with the error that a thread raised, on that thread."""


class TrainingSetup(NamedTuple):
    """The parts of training that are there before the environment is known."""

    config: RunConfig
    """The run's config; with several ranks, this rank's share of it."""
    progress: Progress
    """Read for schedules and the budget; learner steps are counted there."""
    ranks: Ranks
    """The learners that train together."""
    run_dir: RunDir
    """Where checkpoints are saved."""
    hooks: LearnerHooks


class Training(Protocol):
    """Trains, from `build` and `start` to `stop` and `close`.

    The thread that admits the first actor calls `build` and `start`, once. The inference thread
    calls `put`, the main thread the rest.
    """

    weights: PublishedWeights
    """The weights that it publishes to acting; set by `build`."""

    def build(self, spec: EnvSpec, agent: Agent, checkpoint: Checkpoint | None) -> None:
        """Builds everything for an environment, and goes on from a checkpoint if there is one.

        Raises:
          CheckpointError: `checkpoint` holds another network.
          ConfigError: the replay would not fit into memory.
        """
        ...

    def start(self) -> None:
        """Starts all threads."""
        ...

    def put(self, completed: Completed) -> None:
        """Takes unrolls; may block, which pauses acting. Raises Stopped."""
        ...

    def report(self) -> dict[str, float]:
        """Returns metrics; {} before `build`."""
        ...

    def offer(self, score: Score) -> None:
        """Takes a new score; the weights are saved after the next update if it is the best."""
        ...

    def stop(self) -> None:
        """Ends the threads; a thread that waits in `put` raises Stopped."""
        ...

    def save(self) -> None:
        """Writes a checkpoint, after `stop`; and the best one, if the last score is the best.

        Raises CheckpointError.
        """
        ...

    def close(self) -> None:
        """Ends what is left after `stop`; it may be called when nothing was built."""
        ...
