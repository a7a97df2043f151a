"""Injects the faults of a schedule into a fleet, and records what they cost.

A run has survived a fault if it makes progress with all of its actors after the fault is
over.
"""

import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from seed.specs import EnvSpec
from seed_bench.chaos.faults import FaultError, Saboteur
from seed_bench.chaos.fleet import REPORT_EVERY_S, Fleet, Newest
from seed_bench.chaos.schedule import LEARNER_KILLS, Fault

_LOG = logging.getLogger(__name__)

# A run without progress for this long has not survived.
PATIENCE_S = 120.0
_TICK_S = 0.05


@dataclass
class Books:
    """The faults injected into the run, and what they cost."""

    injected: Counter[str] = field(default_factory=Counter)
    survived: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    env_steps_lost: list[int] = field(default_factory=list)
    run_s_lost: list[float] = field(default_factory=list)
    """For each end of the learner: the seconds of progress since the checkpoint it left."""
    env_steps_per_s_max: float = 0.0
    checkpoints_verified: int = 0

    @property
    def learner_kills(self) -> int:
        return sum(self.injected[kind] for kind in LEARNER_KILLS)


class OpenFault(NamedTuple):
    """A fault that the run has not yet survived."""

    kind: str
    over_at_s: float


class ChaosRun:
    """One run from its first report to its end."""

    def __init__(self, fleet: Fleet, schedule: list[Fault], spec: EnvSpec) -> None:
        self.books = Books()
        self.last_report: dict[str, Any] = {}
        self._fleet = fleet
        self._waiting = list(schedule)
        self._saboteur = Saboteur(fleet, spec)
        self._open: list[OpenFault] = []
        self._env_steps = 0
        # The run's seconds when progress last began; before that the run stood still.
        self._began_run_s = 0.0
        self._is_down = True
        self._looked_at_s = self._moved_at_s = time.monotonic()

    def play(self) -> None:
        """Injects every fault when it is due, until the run's end.

        Raises:
          TimeoutError: the run makes no progress.
        """
        try:
            while not self._fleet.has_finished():
                self._look_for_progress()
                if self._fleet.learner_has_died():
                    self._count_losses()
                self._fleet.tend()
                if not self._is_down and self._is_due():
                    self._inject(self._waiting.pop(0))
                time.sleep(_TICK_S)
        finally:
            self._saboteur.close()
        self._look_for_progress()
        self._verify_checkpoints()
        self._close_books()

    def _is_due(self) -> bool:
        return bool(self._waiting) and self._env_steps >= self._waiting[0].due_env_steps

    def _inject(self, fault: Fault) -> None:
        _LOG.info("%9d env steps: %s", self._env_steps, fault.kind)
        self.books.injected[fault.kind] += 1
        try:
            over_at_s = self._saboteur.inject(fault)
        except FaultError as error:
            self.books.failures.append(f"{fault.kind}: {error}")
        else:
            self._open.append(OpenFault(fault.kind, over_at_s))

    def _look_for_progress(self) -> None:
        """Reads the reports made since the last look."""
        for report in self._fleet.new_reports():
            self.last_report = report
            has_moved = report["env_steps"] > self._env_steps
            if report["env_steps"] < self._env_steps:
                went = f"from {self._env_steps} to {report['env_steps']:.0f} env steps"
                self.books.failures.append(f"the run went back {went}, behind its checkpoint")
            self._env_steps = int(report["env_steps"])
            speed = report.get("env_steps_per_s", 0.0)
            self.books.env_steps_per_s_max = max(self.books.env_steps_per_s_max, speed)
            if not has_moved and self._is_down:
                self._began_run_s = report["wall_s"]
            if has_moved:
                self._moved_at_s = time.monotonic()
                self._is_down = False
                if report.get("actors/connected", 0) >= len(self._fleet.actors):
                    self._settle()
        self._looked_at_s = time.monotonic()
        if self._looked_at_s - self._moved_at_s > PATIENCE_S:
            kinds = ", ".join(fault.kind for fault in self._open)
            raise TimeoutError(f"no progress in {PATIENCE_S:g} s after: {kinds}")

    def _settle(self) -> None:
        """Counts the faults survived: those that were over when the report's window began."""
        is_proof_for_s = self._looked_at_s - REPORT_EVERY_S
        survived = [fault for fault in self._open if fault.over_at_s < is_proof_for_s]
        self.books.survived.update(fault.kind for fault in survived)
        self._open = [fault for fault in self._open if fault not in survived]

    def _count_losses(self) -> None:
        """Records what the end of the learner cost: the progress since its newest checkpoint."""
        newest = self._verify_checkpoints()
        lost = max(self._env_steps - newest.env_steps, 0)
        self.books.env_steps_lost.append(lost)
        since_s = max(newest.wall_s, self._began_run_s)
        run_s = max(self.last_report.get("wall_s", 0.0) - since_s, 0.0)
        self.books.run_s_lost.append(run_s)
        _LOG.info("%20s lost %d env steps, %.2f s", "", lost, run_s)
        # The run resumes there, and survives only with progress beyond that checkpoint.
        self._env_steps = newest.env_steps
        self._is_down = True

    def _verify_checkpoints(self) -> Newest:
        checkpoints = self._fleet.verify_checkpoints()
        self.books.checkpoints_verified += checkpoints.verified
        self.books.failures += checkpoints.broken
        return checkpoints.newest

    def _close_books(self) -> None:
        unasked = len(self.books.env_steps_lost) - self.books.learner_kills
        if unasked:
            self.books.failures.append(f"the learner ended unasked {unasked} times")
        self.books.failures += self._fleet.surrenders
        self.books.failures += [f"{fault.kind}: was not seen to be over" for fault in self._open]
        self.books.failures += [f"{fault.kind}: was not reached" for fault in self._waiting]
