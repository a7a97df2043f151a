"""What a run has done so far. Checkpoints keep it, so that a resumed run goes on counting.

The inference thread adds steps and episodes, the server takes seeds, and the reporting
thread reads. The trainer counts learner steps, in `progress`.
"""

import dataclasses
import statistics
import threading
from collections import deque
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from learner.checkpoints.best import Score
from learner.reporting.merging import Weighted
from learner.reporting.progress import Progress
from learner.reporting.score_window import ScoreWindow
from seed.wire import Episode

# `episode/return_mean_100` is the mean over this many games.
RETURN_WINDOW = 100


class Counters:
    """Thread-safe totals of a run."""

    def __init__(self, rank: int = 0) -> None:
        """`rank` is the number of this learner among those that train together."""
        self.progress = Progress()
        """The totals that the trainer reads, in memory that its process shares."""
        self._rank = rank
        self._lock = threading.Lock()
        self._totals = Totals()
        self._recent_returns: deque[float] = deque(maxlen=RETURN_WINDOW)
        self._score = ScoreWindow()
        self._unreported: list[Episode] = []
        self._unreported_eval: list[Episode] = []

    @property
    def env_steps(self) -> int:
        """Actions applied by training actors."""
        return self.progress.env_steps

    @property
    def learner_steps(self) -> int:
        """Optimiser updates."""
        return self.progress.learner_steps

    def add_env_steps(self, count: int) -> None:
        """Counts actions applied. Only the inference thread may call it."""
        self.progress.own_env_steps += count

    def add_episode(self, episode: Episode, *, is_eval: bool) -> None:
        """Counts a full game."""
        with self._lock:
            self._score.add(episode.episode_return, is_eval=is_eval)
            if is_eval:
                self._unreported_eval.append(episode)
                return
            self._totals.episodes += 1
            self._recent_returns.append(episode.episode_return)
            self._unreported.append(episode)

    def score(self, num_envs: int) -> Score | None:
        """Returns how well the run plays now, with `num_envs` environments; see `ScoreWindow`."""
        with self._lock:
            return self._score.score(num_envs)

    def next_actor_seed(self, rng_seed: int) -> int:
        """Returns a seed that no other actor of this run gets, not even after a restart."""
        with self._lock:
            self._totals.actor_seeds += 1
            place = (self._rank,) if self._rank else ()
            sequence = np.random.SeedSequence([rng_seed, self._totals.actor_seeds], spawn_key=place)
        return int(sequence.generate_state(1, np.uint32)[0])

    def report(self) -> dict[str, float]:
        """Returns totals, and means and extremes over the games that ended since the last report.

        Each mean weighs as many games as it is taken over.
        """
        with self._lock:
            report: dict[str, float] = {
                "env_steps": self.env_steps,
                "learner_steps": self.learner_steps,
                "episodes": self._totals.episodes,
            }
            report |= _figures_of("episode", self._unreported)
            report |= _figures_of("eval", self._unreported_eval)
            if self._recent_returns:
                report["episode/return_mean_100"] = _mean(self._recent_returns)
            self._unreported, self._unreported_eval = [], []
        return report

    def state_dict(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps."""
        with self._lock:
            return {
                "env_steps": self.env_steps,
                "learner_steps": self.learner_steps,
                **dataclasses.asdict(self._totals),
                "recent_returns": [*self._recent_returns],
            }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from the `state_dict` that the first rank saved.

        The env steps of all ranks until then count as the first rank's own.
        """
        self.progress.learner_steps = state["learner_steps"]
        with self._lock:
            self._totals.actor_seeds = state["actor_seeds"]
            if self._rank:
                self.progress.others_env_steps = state["env_steps"]
                return
            self.progress.own_env_steps = state["env_steps"]
            self._totals.episodes = state["episodes"]
            self._recent_returns.extend(state["recent_returns"])


@dataclasses.dataclass
class Totals:
    """Totals since the start of the run, restarts included, that are not in `Progress`."""

    episodes: int = 0
    actor_seeds: int = 0


def _figures_of(prefix: str, episodes: Sequence[Episode]) -> dict[str, float]:
    if not episodes:
        return {}
    returns = [episode.episode_return for episode in episodes]
    return {
        f"{prefix}/return_mean": _mean(returns),
        f"{prefix}/return_min": min(returns),
        f"{prefix}/return_max": max(returns),
        f"{prefix}/return_std": Weighted(float(np.std(returns)), len(returns)),
        f"{prefix}/length_mean": _mean([episode.length for episode in episodes]),
    }


def _mean(values: Collection[float]) -> Weighted:
    return Weighted(statistics.fmean(values), len(values))
