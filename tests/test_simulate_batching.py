"""The comparison of batching rules: deterministic, and true to what it models."""

import dataclasses

import numpy as np
import pytest

from tools.simulate_batching import RULES, WARM_UP_S, Device, Fleet, Outcome, Rule, Simulation

DEVICE = Device(name="test", fixed_s=1e-3, per_env_s=10e-6)
FLEET = Fleet(name="test", num_actors=4, envs_per_group=8)
RULE = {rule.name: rule for rule in RULES}


def outcome(rule: str, **changes: float) -> Outcome:
    """Returns what a rule makes of a second of `FLEET` with some changes."""
    fleet = dataclasses.replace(FLEET, **changes)
    return Simulation(fleet, DEVICE, RULE[rule], WARM_UP_S + 1.0).run()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_same_numbers_each_time(rule: Rule) -> None:
    """So that the table in docs/performance.md can be made again."""
    assert outcome(rule.name) == outcome(rule.name)


def test_nobody_steps_before_being_answered() -> None:
    """Each of 8 groups has one message in flight: no batch is larger, and none is empty."""
    sizes = outcome("whatever is there", step_s=0.0).batch_sizes
    assert min(sizes) > 0 and max(sizes) <= 64


def test_core_steps_one_group_at_a_time() -> None:
    """4 cores make 4 / 300 us steps a second at the most, however fast they are answered."""
    sizes = outcome("whatever is there").batch_sizes
    assert 0.8 * 4 / 300e-6 < sum(sizes) < 1.05 * 4 / 300e-6


def test_rate_rule_does_not_wait_for_the_dead() -> None:
    """Waiting for a share of those connected does, until the deadline."""
    waiting, living = outcome("all or 10 ms", num_dead=2), outcome("rate, up to all", num_dead=2)
    assert np.median(waiting.latencies_s) > np.percentile(living.latencies_s, 99)
    assert sum(waiting.batch_sizes) < sum(living.batch_sizes)
