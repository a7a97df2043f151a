"""How far a run has come, as each of its processes sees it."""

import pickle
from multiprocessing.reduction import ForkingPickler

from learner.reporting.progress import Progress


def test_counts_of_another_process_are_seen() -> None:
    """The copy that a process gets shares its memory, and the env steps of all ranks add up."""
    progress = Progress()
    trainers: Progress = pickle.loads(ForkingPickler.dumps(progress))
    progress.own_env_steps = 12
    trainers.learner_steps = 7
    trainers.others_env_steps = 30
    assert trainers.own_env_steps == 12
    assert progress.learner_steps == 7
    assert progress.env_steps == trainers.env_steps == 42
