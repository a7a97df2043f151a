"""Where the files of a run lie in its directory. Torch-free; makes and changes nothing.

Used by the learner, by `seed eval`, and by the tools that read a run's files.
"""

import dataclasses
import json
from pathlib import Path

from seed.errors import ConfigError, expected


@dataclasses.dataclass(frozen=True)
class RunDir:
    """The directory of one run."""

    path: Path

    @property
    def name(self) -> str:
        """What actors are told that they serve."""
        return self.path.name

    @property
    def config(self) -> Path:
        """The run's settings, and the code and machine that ran it."""
        return self.path / "config.yaml"

    @property
    def metrics(self) -> Path:
        """One report a line, as JSON."""
        return self.path / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        """Directory of the checkpoints; see learner/checkpoint.py."""
        return self.path / "checkpoints"

    @property
    def lock(self) -> Path:
        """Names the learner that uses the directory; see learner/run_lock.py."""
        return self.path / "learner.lock"

    @property
    def has_results(self) -> bool:
        """Whether a run has got further here than its start: it counted env steps, or saved.

        A start that failed, or was killed, may leave a config, logs and empty reports.
        """
        if self.checkpoints.exists():
            return True
        if not self.metrics.exists():
            return False
        with self.metrics.open("rb") as lines:
            return any(map(_counts_env_steps, lines))

    @property
    def non_finite(self) -> Path:
        """Directory of the batches whose loss or gradient was not finite."""
        return self.path / "non_finite"

    def actor_log(self, index: int) -> Path:
        """Log of a local actor."""
        return self.path / f"actor-{index}.log"

    def eval_actor_log(self, index: int) -> Path:
        """Log of a local actor that only evaluates."""
        return self.path / f"eval-actor-{index}.log"


def run_of(path: Path) -> RunDir:
    """Returns the run at `path`, or the one that the checkpoint at `path` belongs to.

    Raises:
      ConfigError: there is no run.
    """
    for run in (RunDir(path), RunDir(path.resolve().parent.parent)):
        if run.config.exists():
            return run
    raise ConfigError(expected("RUN", "a run directory with a config.yaml", path))


def _counts_env_steps(line: bytes) -> bool:
    """Whether a line of the metrics counts env steps; so does a line that cannot be read."""
    try:
        return json.loads(line)["env_steps"] > 0
    except (ValueError, TypeError, KeyError):
        return True
