"""The cost of replay: what the bytes of a sequence must add up to."""

import dataclasses

import pytest

from seed.errors import ConfigError
from seed_bench.parts.replay import ReplayArgs, measure_replay


def test_sequences_of_noise_take_the_bytes_of_their_frames() -> None:
    """80 frames and the 3 before them, the state of an LSTM of 512, and small change."""
    cost = measure_replay(ReplayArgs(sequences=8, num_envs=4, rounds=1))
    assert 83 * 84 * 84 < cost["bytes_per_sequence"] < 83 * 84 * 84 * 1.1
    assert cost["insert_s_per_sequence"] > 0 and cost["sample_s_per_sequence"] > 0


@pytest.mark.parametrize("field", ["sequences", "num_envs", "rounds"])
def test_args_that_measure_nothing_are_refused(field: str) -> None:
    """Naming the field."""
    with pytest.raises(ConfigError, match=f"^{field}: expected"):
        dataclasses.replace(ReplayArgs(), **{field: 0})
