"""Which score takes the place of which, and how often that may cost a save."""

import math

import pytest

from learner.checkpoints.best import EVAL_SCORE, TRAINING_SCORE, BestScore, Score


def training(value: float) -> Score:
    """Returns a score of training games."""
    return Score(TRAINING_SCORE, value, 100)


def evaluation(value: float) -> Score:
    """Returns a score of evaluation games."""
    return Score(EVAL_SCORE, value, 20)


@pytest.mark.parametrize(
    ("known", "offered", "is_better"),
    [
        (None, training(-5), True),
        (training(3), training(4), True),
        (training(3), training(3), False),
        (training(3), training(2), False),
        (training(3), evaluation(1), True),
        (evaluation(3), evaluation(2), False),
        (evaluation(3), evaluation(3.5), True),
        (evaluation(3), training(2), False),
        (evaluation(3), training(4), True),
        (None, training(math.nan), False),
        (training(3), training(math.inf), False),
        (training(3), evaluation(math.nan), False),
    ],
)
def test_better_score_takes_the_place(known: Score | None, offered: Score, is_better: bool) -> None:
    """Higher is better, a tie changes nothing, and evaluation goes before training."""
    best = BestScore(known)
    best.offer(offered)
    assert best.take_better() == (offered if is_better else None)
    assert best.take_better() is None, "a score is taken once"


def test_saves_take_at_most_a_twentieth_of_the_time() -> None:
    """After a save of 2 s the next one waits 40 s, for whatever score is then the newest."""
    now = 100.0
    best = BestScore(None, clock=lambda: now)
    best.saved(training(1), took_s=2)
    now = 139.9
    best.offer(training(5))
    assert best.take_better() is None
    now = 140.0
    assert best.take_better() is None, "the weights of that score are gone"
    best.offer(training(4))
    assert best.take_better() == training(4)
    best.saved(training(4), took_s=0.1)
    assert best.score == training(4)
