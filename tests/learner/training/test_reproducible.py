"""The losses of a run depend on its seed alone: not on the thread or process that trains."""

from pathlib import Path

import pytest

from tests.support.lockstep import Lockstep, TrainIn, lockstep_config

NUM_UPDATES = 12


def losses(directory: Path, algorithm: str, train_in: TrainIn, rng_seed: int = 7) -> list[float]:
    """Returns the first losses of a run in lockstep."""
    config = lockstep_config(algorithm, train_in, rng_seed)
    return Lockstep(config, directory).losses(NUM_UPDATES)


@pytest.mark.parametrize("algorithm", ["vtrace", "r2d2"])
def test_thread_and_process_train_alike(tmp_path: Path, algorithm: str) -> None:
    """The losses are the same bits, with the unroll ring and shared weights or without."""
    in_thread = losses(tmp_path / "thread", algorithm, "thread")
    assert losses(tmp_path / "process", algorithm, "process") == in_thread
    assert len(set(in_thread)) == NUM_UPDATES
    assert losses(tmp_path / "again", algorithm, "thread") == in_thread
    assert losses(tmp_path / "other", algorithm, "thread", rng_seed=8) != in_thread
