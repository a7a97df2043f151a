"""The report of a chaos run on fleets that do not recover as they should."""

from collections.abc import Iterator
from typing import Any, cast

import pytest

from seed_bench.chaos.fleet import Checkpoints, Fleet, Newest
from seed_bench.chaos.run import Books, ChaosRun
from seed_bench.chaos.schedule import Fault
from seed_bench.chaos.visitor import SPEC

NUM_ACTORS = 2
RESET = Fault(10, "connection reset", 0, 0.0, 0)
KILL = Fault(10, "learner killed", 0, 0.0, 0)


class FakeNetwork:
    """A network that has nothing to reset."""

    def reset(self) -> None:
        """Does nothing."""


class FakeLearner:
    """A process that ends when a caller waits for it."""

    pid = 1 << 30  # A number larger than the id of any process.

    def __init__(self) -> None:
        self.has_died = False

    def wait(self, timeout: float) -> None:
        """Returns the exit code."""
        self.has_died = True


class FakeFleet:
    """Returns its reports one by one, and ends after the last."""

    def __init__(self, reports: Iterator[tuple[int, int]], newest: Newest) -> None:
        """`reports` are (env steps, actors connected)."""
        self.actors = [None] * NUM_ACTORS
        self.networks = [FakeNetwork()] * NUM_ACTORS
        self.surrenders: list[str] = []
        self.learner = FakeLearner()
        self._reports = reports
        self._newest = newest
        self._is_over = False

    def new_reports(self) -> list[dict[str, Any]]:
        """Returns one report, or none from a learner that has died."""
        if self.learner.has_died:
            return []
        report = next(self._reports, None)
        if report is None:
            self._is_over = True
            return []
        env_steps, num_actors = report
        return [{"env_steps": env_steps, "actors/connected": num_actors, "wall_s": 1.0}]

    def has_finished(self) -> bool:
        """Tells whether all reports have been made."""
        return self._is_over

    def learner_has_died(self) -> bool:
        """Tells whether the learner was killed."""
        return self.learner.has_died

    def trainer_process(self) -> None:
        """Returns None."""

    def tend(self) -> None:
        """Starts the learner again."""
        self.learner.has_died = False

    def verify_checkpoints(self) -> Checkpoints:
        """Returns one checkpoint."""
        return Checkpoints(1, [], self._newest)


def play(
    reports: Iterator[tuple[int, int]], *schedule: Fault, newest: Newest | None = None
) -> Books:
    """Returns the chaos report of a run with such reports."""
    fleet = cast(Fleet, FakeFleet(reports, newest or Newest()))
    run = ChaosRun(fleet, list(schedule), SPEC)
    run.play()
    return run.books


def test_fault_is_survived_once_all_actors_are_back() -> None:
    """The run must also have moved since."""
    books = play(((20 + step, NUM_ACTORS) for step in range(12)), RESET)
    assert books.survived == {"connection reset": 1}
    assert books.failures == []


@pytest.mark.parametrize("num_actors, step", [(NUM_ACTORS - 1, 1), (NUM_ACTORS, 0)])
def test_fault_is_not_survived_with_an_actor_away_or_a_run_at_rest(
    num_actors: int, step: int
) -> None:
    """The report names the fault at the end."""
    books = play(((20 + step * number, num_actors) for number in range(12)), RESET)
    assert books.injected == {"connection reset": 1}
    assert not books.survived
    assert books.failures == ["connection reset: was not seen to be over"]


def test_run_that_ends_before_its_faults_has_failed() -> None:
    """The report names the faults that were not reached."""
    assert play(iter([(1, NUM_ACTORS)]), RESET).failures == ["connection reset: was not reached"]


def test_kill_costs_what_came_after_the_checkpoint() -> None:
    """The run goes on from the checkpoint; going on from less is a failure."""
    newest = Newest(env_steps=30, wall_s=0.25)
    books = play(iter([(50, 0), (30, 0), (40, 0)]), KILL, newest=newest)
    assert (books.env_steps_lost, books.run_s_lost) == ([20], [0.75])
    assert not any("went back" in failure for failure in books.failures)
    books = play(iter([(50, 0), (29, 0)]), KILL, newest=newest)
    assert "the run went back from 30 to 29 env steps, behind its checkpoint" in books.failures


def test_learner_that_ends_unasked_is_a_failure() -> None:
    """It is a failure even if the run goes on well."""

    def reports() -> Iterator[tuple[int, int]]:
        yield 50, NUM_ACTORS
        fleet.learner.has_died = True
        yield 50, NUM_ACTORS
        yield 60, NUM_ACTORS

    fleet = FakeFleet(reports(), Newest(env_steps=50))
    run = ChaosRun(cast(Fleet, fleet), [], SPEC)
    run.play()
    assert run.books.failures == ["the learner ended unasked 1 times"]
