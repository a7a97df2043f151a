"""The last line of `seed train` and `seed learner`: where the run is, and how to see it play.

Called by the main thread after the run has been saved.
"""

import importlib.util
from pathlib import Path

from learner.checkpoint import best_score, was_ever_saved
from learner.checkpoints.best import EVAL_SCORE, Score
from learner.config.run_dir import RunDir


def last_words(run_dir: Path) -> str:
    """Returns a line for people; it advises only what works where the learner runs."""
    checkpoints = RunDir(run_dir).checkpoints
    if not was_ever_saved(checkpoints):
        return "stopped before the first env step; nothing is saved"
    score = best_score(checkpoints)
    parts = [f"saved in {run_dir}"]
    command = f"seed eval {run_dir}"
    if score is not None:
        parts.append(f"best checkpoint: {_text(score)}")
        command += " --checkpoint best"
    # The learner's image has no environments.
    if importlib.util.find_spec("gymnasium") is None:
        command = f"{command}, where the environments are installed"
    return "; ".join([*parts, f"watch it play: {command}"])


def _text(score: Score) -> str:
    games = "evaluation games" if score.metric == EVAL_SCORE else "training games"
    return f"mean return {score.value:.2f} in {score.num_games} {games}"
