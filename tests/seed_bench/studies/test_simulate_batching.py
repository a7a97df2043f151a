"""The comparison of batching rules is deterministic, and true to its model."""

import dataclasses

import numpy as np
import pytest

from seed_bench.studies.record_arrivals import Recording
from seed_bench.studies.simulate_batching import (
    RULES,
    WARM_UP_S,
    Actors,
    Device,
    Fleet,
    ModelActors,
    Outcome,
    RecordedActors,
    Rule,
    Simulation,
)

DEVICE = Device(name="test", fixed_s=1e-3, per_env_s=10e-6, copies_of_recorded=1)
FLEET = Fleet(name="test", num_actors=4, envs_per_group=8)
RULE = {rule.name: rule for rule in RULES}


def outcome(rule: str, **changes: float) -> Outcome:
    """Returns the figures of a rule for a second of `FLEET` with some changes."""
    fleet = dataclasses.replace(FLEET, **changes)
    return simulated(ModelActors(fleet), rule)


def simulated(actors: Actors, rule: str) -> Outcome:
    """Returns the figures of a rule for a second of these actors."""
    return Simulation(actors, DEVICE, RULE[rule], WARM_UP_S + 1.0).run()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_same_numbers_each_time(rule: Rule) -> None:
    """The table in docs/performance.md can be made again."""
    assert outcome(rule.name) == outcome(rule.name)


def test_no_group_steps_before_it_is_answered() -> None:
    """Each of 8 groups has one message under way, so no batch is larger, and none is empty."""
    sizes = outcome("whatever is there", step_s=0.0).batch_sizes
    assert min(sizes) > 0 and max(sizes) <= 64


def test_core_steps_one_group_at_a_time() -> None:
    """4 cores make at most 4 / 300 us steps a second, however fast the answers come."""
    sizes = outcome("whatever is there").batch_sizes
    assert 0.8 * 4 / 300e-6 < sum(sizes) < 1.05 * 4 / 300e-6


def test_rate_rule_does_not_wait_for_stopped_actors() -> None:
    """The rule that waits for a share of the connected ones waits until the deadline."""
    waiting, living = outcome("all or 10 ms", num_dead=2), outcome("rate, up to all", num_dead=2)
    assert np.median(waiting.latencies_s) > np.percentile(living.latencies_s, 99)
    assert sum(waiting.batch_sizes) < sum(living.batch_sizes)


def test_recorded_group_takes_as_long_as_it_did() -> None:
    """It repeats its record, from the place where it enters."""
    actors = RecordedActors(Recording(4, 4, [[0.1, 0.2, 0.4]]), copies=1)
    times = [actors.reports_at(0, answered_s=1.0) - 1.0 for _ in range(6)]
    assert sorted(times[:3]) == pytest.approx([0.1, 0.2, 0.4])
    assert times[3:] == times[:3]


def test_copies_of_a_recorded_fleet_are_as_many_more_environments() -> None:
    """The environments of its silent actors are connected too."""
    actors = RecordedActors(Recording(12, 4, [[0.1], [0.2]]), copies=3)
    assert (len(actors.groups), actors.num_connected_envs) == (6, 36)
    sizes = simulated(actors, "whatever is there").batch_sizes
    # Three groups report every 101 ms and three every 201: as often as when recorded, and the
    # device's millisecond.
    assert sum(sizes) == pytest.approx(3 * 4 * (1 / 0.101 + 1 / 0.201), rel=0.1)
