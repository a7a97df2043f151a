"""The rule of thumb for learners that are far from their actors."""

import pytest

from seed_bench.in_flight import Cycle, advice


def test_each_environment_steps_once_a_cycle() -> None:
    """The cycle of 64 ms is worked by hand."""
    cycle = Cycle(round_trip_s=0.05, group_s=0.01, learner_s=0.004)
    assert cycle.seconds == pytest.approx(0.064)
    assert cycle.env_steps_per_s(128) == pytest.approx(2000)
    assert cycle.envs_needed(2000) == 128
    assert cycle.envs_needed(2001) == 129


@pytest.mark.parametrize("num_envs", [1, 7, 1024])
def test_need_and_speed_agree(num_envs: int) -> None:
    """The number of environments that a speed needs makes that speed."""
    cycle = Cycle(0.1, 0.003, 0.0)
    rate = cycle.env_steps_per_s(num_envs)
    assert cycle.envs_needed(rate * 0.9999) == num_envs


def test_advice_names_what_it_is_made_of() -> None:
    """A reader can repeat the sum for a network of another latency."""
    assert advice(2000, group_s=0.01, learner_s=0.004) == (
        "over 50 ms this learner needs 128 environments in flight for its 2,000 env steps/s "
        "(10.0 ms are a group's step, 4.0 ms the learner's)"
    )
