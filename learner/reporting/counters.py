"""What a run has done so far; survives restarts through the checkpoint.

Written by the inference thread (steps, episodes) and the server (seeds); read by
reports. Learner steps are the trainer's, and come with `progress`.
"""

import dataclasses
import threading
from collections import deque
from typing import Any

import numpy as np

from learner.reporting.progress import Progress
from seed.wire import Episode

# Games over which `episode/return_mean_100` is taken.
RETURN_WINDOW = 100


class Counters:
    """Thread-safe totals of a run."""

    def __init__(self, rank: int = 0) -> None:
        """`rank` is that of this learner among those that train together."""
        self.progress = Progress()
        """What the trainer sees of the totals."""
        self._rank = rank
        self._lock = threading.Lock()
        self._totals = Totals()
        self._recent_returns: deque[float] = deque(maxlen=RETURN_WINDOW)
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
        """Counts actions applied; for the inference thread alone."""
        self.progress.own_env_steps += count

    def add_episode(self, episode: Episode, *, is_eval: bool) -> None:
        """Counts a full game."""
        with self._lock:
            if is_eval:
                self._unreported_eval.append(episode)
                return
            self._totals.episodes += 1
            self._recent_returns.append(episode.episode_return)
            self._unreported.append(episode)

    def next_actor_seed(self, rng_seed: int) -> int:
        """Returns a seed that no other actor of this run gets, also after a restart."""
        with self._lock:
            self._totals.actor_seeds += 1
            place = (self._rank,) if self._rank else ()
            sequence = np.random.SeedSequence([rng_seed, self._totals.actor_seeds], spawn_key=place)
        return int(sequence.generate_state(1, np.uint32)[0])

    def report(self) -> dict[str, float]:
        """Returns totals, and statistics of the games ended since the last report."""
        with self._lock:
            report: dict[str, float] = {
                "env_steps": self.env_steps,
                "learner_steps": self.learner_steps,
                "episodes": self._totals.episodes,
            }
            for prefix, episodes in (
                ("episode", self._unreported),
                ("eval", self._unreported_eval),
            ):
                if episodes:
                    returns = [episode.episode_return for episode in episodes]
                    report[f"{prefix}/return_mean"] = float(np.mean(returns))
                    report[f"{prefix}/length_mean"] = float(np.mean([e.length for e in episodes]))
            if self._recent_returns:
                report["episode/return_mean_100"] = float(np.mean(self._recent_returns))
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
        """Goes on from what `state_dict` returned, which the first rank saved.

        What all ranks did until then counts as done by the first.
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
    """Since the start of the run, restarts included; beside those in `Progress`."""

    episodes: int = 0
    actor_seeds: int = 0
