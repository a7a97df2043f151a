"""How well a run plays now: the mean return of its newest games.

The inference thread adds games, the reporting thread reads the score. `Counters` holds the lock.
"""

import statistics
from collections import deque

from learner.checkpoints.best import EVAL_SCORE, TRAINING_SCORE, Score

# Games behind a score: enough that luck alone seldom makes it the best.
TRAINING_GAMES = 100
EVAL_GAMES = 20


class ScoreWindow:
    """The returns of the newest games that this process has seen, from training and evaluation."""

    def __init__(self) -> None:
        self._training: deque[float] = deque(maxlen=TRAINING_GAMES)
        self._evaluation: deque[float] = deque(maxlen=EVAL_GAMES)
        self._num_training = 0

    def add(self, episode_return: float, *, is_eval: bool) -> None:
        """Adds a full game."""
        if is_eval:
            self._evaluation.append(episode_return)
            return
        self._training.append(episode_return)
        self._num_training += 1

    def score(self, num_envs: int) -> Score | None:
        """Returns the score; None while too few games have ended.

        The score is that of evaluation once `EVAL_GAMES` of its games have ended. Otherwise it is
        that of training, after `TRAINING_GAMES` games and two games for each of the `num_envs`
        environments: the first games to end are the short ones, which may be the best or the
        worst of all.
        """
        if len(self._evaluation) == EVAL_GAMES:
            return Score(EVAL_SCORE, statistics.fmean(self._evaluation), EVAL_GAMES)
        if self._num_training < max(TRAINING_GAMES, 2 * num_envs):
            return None
        return Score(TRAINING_SCORE, statistics.fmean(self._training), TRAINING_GAMES)
