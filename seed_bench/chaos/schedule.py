"""Which faults come, and when: decided by a seed before the run begins."""

import random
from typing import NamedTuple

# How many of a hundred faults are of which kind. A killed learner costs seconds, and what
# it learned since its last checkpoint: a few of these say as much as many.
SHARES = {
    "actor killed": 22,
    "garbage client": 26,
    "connection cut": 16,
    "connection reset": 10,
    "actor stalled": 14,
    "learner stalled": 4,
    "trainer process stalled": 2,
    "learner killed": 3,
    "trainer process killed": 1,
    "killed while saving": 2,
}

# Of these, which end the learner.
LEARNER_KILLS = ("learner killed", "trainer process killed", "killed while saving")


class Fault(NamedTuple):
    """Something that is done to a run."""

    due_env_steps: int
    """Progress of the run at which it comes."""
    kind: str
    """One of `SHARES`."""
    actor: int
    """Whom it hits, if it hits an actor."""
    seconds: float
    """How long it lasts, if it lasts."""
    variant: int
    """Decides what else there is to decide."""


def make_schedule(
    num_faults: int, *, num_actors: int, until_env_steps: int, rng_seed: int
) -> list[Fault]:
    """Returns faults at random moments of the run's progress, every kind at least once.

    By progress and not by time: a run that is down is not kicked again.
    """
    generator = random.Random(rng_seed)
    kinds = list(SHARES)
    kinds += generator.choices(list(SHARES), list(SHARES.values()), k=max(num_faults, 0))
    kinds = kinds[:num_faults]
    generator.shuffle(kinds)
    due = sorted(generator.randrange(1, until_env_steps) for _ in kinds)
    return [
        Fault(
            due_env_steps=due_env_steps,
            kind=kind,
            actor=generator.randrange(num_actors),
            seconds=generator.uniform(0.3, 2.0),
            variant=generator.randrange(1_000_000),
        )
        for due_env_steps, kind in zip(due, kinds, strict=True)
    ]
