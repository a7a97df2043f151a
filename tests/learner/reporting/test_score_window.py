"""A score is a mean over enough games, and over games of all lengths."""

from learner.checkpoints.best import EVAL_SCORE, TRAINING_SCORE, Score
from learner.reporting.score_window import EVAL_GAMES, TRAINING_GAMES, ScoreWindow


def test_training_has_a_score_after_a_hundred_games() -> None:
    """It is the mean of the last 100."""
    window = ScoreWindow()
    for number in range(TRAINING_GAMES - 1):
        window.add(number, is_eval=False)
        assert window.score(num_envs=8) is None
    window.add(99, is_eval=False)
    assert window.score(num_envs=8) == Score(TRAINING_SCORE, 49.5, 100)
    window.add(100, is_eval=False)
    assert window.score(num_envs=8) == Score(TRAINING_SCORE, 50.5, 100)


def test_first_games_of_many_environments_give_no_score() -> None:
    """They are the short ones: in a maze, lucky wins end long before the games without a win."""
    window = ScoreWindow()
    for _ in range(511):
        window.add(1.0, is_eval=False)
    assert window.score(num_envs=256) is None
    window.add(0.0, is_eval=False)
    assert window.score(num_envs=256) == Score(TRAINING_SCORE, 0.99, 100)


def test_evaluation_goes_before_training_once_twenty_of_its_games_have_ended() -> None:
    """Until then the score is that of training."""
    window = ScoreWindow()
    for _ in range(TRAINING_GAMES):
        window.add(1.0, is_eval=False)
    for _ in range(EVAL_GAMES - 1):
        window.add(9.0, is_eval=True)
    assert window.score(num_envs=1) == Score(TRAINING_SCORE, 1.0, 100)
    window.add(9.0, is_eval=True)
    assert window.score(num_envs=1) == Score(EVAL_SCORE, 9.0, 20)
