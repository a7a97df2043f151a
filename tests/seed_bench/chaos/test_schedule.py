"""Which faults a chaos run injects, and when."""

from seed_bench.chaos.schedule import SHARES, make_schedule


def test_schedule_is_the_same_for_the_same_seed() -> None:
    """And holds every kind of fault, in the order in which they are due."""
    first, again = (
        make_schedule(200, num_actors=3, until_env_steps=1_000, rng_seed=4) for _ in range(2)
    )
    assert first == again
    assert first != make_schedule(200, num_actors=3, until_env_steps=1_000, rng_seed=5)
    assert len(first) == 200
    assert {fault.kind for fault in first} == SHARES.keys()
    due = [fault.due_env_steps for fault in first]
    assert due == sorted(due) and due[0] > 0 and due[-1] < 1_000
