"""Which checkpoint of a run is the best, and when it is saved.

The main thread offers scores, the trainer thread decides and saves. Leaves how scores are
measured to `learner/reporting/counters.py`, and the files to `learner/checkpoint.py`.
"""

import math
import time
from collections.abc import Callable
from typing import NamedTuple

EVAL_SCORE = "eval/return_mean"
TRAINING_SCORE = "episode/return_mean_100"

# A save may take this share of the trainer's time: after one that took .1 s, the next waits 2 s.
_SHARE_OF_TIME = 0.05


class Score(NamedTuple):
    """How well a run plays, over its newest games."""

    metric: str
    """`EVAL_SCORE` or `TRAINING_SCORE`."""
    value: float
    """Mean undiscounted return."""
    num_games: int
    """Games that the mean is taken over."""

    def beats(self, other: "Score") -> bool:
        """Tells whether this score takes the place of `other`.

        Evaluation measures the policy itself, so its first score takes the place of any score
        of games with exploration. A tie changes nothing.
        """
        if self.metric == EVAL_SCORE and other.metric != EVAL_SCORE:
            return True
        return self.value > other.value


class BestScore:
    """The score of the best checkpoint there is, and whether another one takes its place."""

    def __init__(self, known: Score | None, clock: Callable[[], float] = time.monotonic) -> None:
        """Goes on from the score that an earlier process of the run saved."""
        self.score = known
        self._clock = clock
        self._offered: Score | None = None
        self._rests_until = -math.inf

    def offer(self, score: Score) -> None:
        """Hands in a new score; only the newest one counts."""
        self._offered = score

    def take_better(self) -> Score | None:
        """Returns a score that was offered and whose weights are to be saved now; else None."""
        offered, self._offered = self._offered, None
        if offered is None or self._clock() < self._rests_until:
            return None
        is_better = self.score is None or offered.beats(self.score)
        return offered if is_better and math.isfinite(offered.value) else None

    def saved(self, score: Score, *, took_s: float) -> None:
        """Takes over the score of a checkpoint that was saved in `took_s` seconds."""
        self.score = score
        self.rest(took_s / _SHARE_OF_TIME)

    def rest(self, seconds: float) -> None:
        """Takes no score for a while: saving is costly, or has failed."""
        self._rests_until = self._clock() + seconds
