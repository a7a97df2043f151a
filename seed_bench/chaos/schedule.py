"""Chooses the kinds and times of the faults: a seed decides them before the run begins."""

import random
from typing import NamedTuple

# How many of a hundred faults are of which kind. A killed learner costs seconds, and the
# steps since its last checkpoint, so a few such kills are enough.
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

# The kinds that end the learner.
LEARNER_KILLS = ("learner killed", "trainer process killed", "killed while saving")


class Fault(NamedTuple):
    """One fault of a run."""

    due_env_steps: int
    """Env steps of the run at which the fault is injected."""
    kind: str
    """One of `SHARES`."""
    actor: int
    """Number of the actor that the fault hits, if it hits an actor."""
    seconds: float
    """How long the fault lasts, if its kind lasts."""
    variant: int
    """Chooses the garbage client, and seeds its random numbers."""


def make_schedule(
    num_faults: int, *, num_actors: int, until_env_steps: int, rng_seed: int
) -> list[Fault]:
    """Returns faults at random moments of the run's progress, every kind at least once.

    The moments are env steps, not times: while a run is down no further fault comes.
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
