"""Injects a schedule of faults into a fleet, and keeps the books."""

import contextlib
import logging
import math
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from seed.specs import EnvSpec
from tests.chaos.fleet import Fleet, Newest
from tests.chaos.garbage import send_garbage
from tests.chaos.schedule import Fault

_LOG = logging.getLogger(__name__)

# A run that does not move for so long has not survived.
PATIENCE_S = 120.0
_TICK_S = 0.05


@dataclass
class Books:
    """What was done to the run, and what it cost."""

    injected: Counter[str] = field(default_factory=Counter)
    survived: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    env_steps_lost: list[int] = field(default_factory=list)
    checkpoint_ages_s: list[float] = field(default_factory=list)
    checkpoints_verified: int = 0


class ChaosRun:
    """One run from its first report to its end."""

    def __init__(self, fleet: Fleet, schedule: list[Fault], spec: EnvSpec) -> None:
        self.books = Books()
        self._fleet = fleet
        self._schedule = schedule
        self._spec = spec
        # What ends by itself: when, and how.
        self._later: list[tuple[float, Callable[[], None]]] = []
        # Faults that the run has yet to show that it survived.
        self._open: list[str] = []
        self._env_steps = 0
        self._is_down = True
        self.last_report: dict[str, Any] = {}
        self._moved_at = time.monotonic()

    def play(self) -> None:
        """Injects every fault when it is due, then waits for the run's end."""
        waiting = list(self._schedule)
        while not self._fleet.has_finished():
            self._fleet.tend()
            self._end_what_is_over(time.monotonic())
            self._look_for_progress()
            if not self._is_down and waiting and self._env_steps >= waiting[0].due_env_steps:
                self._inject(waiting.pop(0))
            time.sleep(_TICK_S)
        self._look_for_progress()
        self._settle()
        unasked = self._fleet.restarts - len(self.books.checkpoint_ages_s)
        if unasked:
            self.books.failures.append(f"the learner ended unasked {unasked} times")
        self.books.failures += self._fleet.surrenders
        self.books.failures += [f"{fault.kind}: was not reached" for fault in waiting]

    def _look_for_progress(self) -> None:
        for report in self._fleet.new_reports():
            if report["env_steps"] > self._env_steps:
                self._settle()
            self._env_steps = int(report["env_steps"])
            self.last_report = report
        if time.monotonic() - self._moved_at > PATIENCE_S:
            raise TimeoutError(f"no progress in {PATIENCE_S:g} s after: {', '.join(self._open)}")

    def _settle(self) -> None:
        """The run has moved: it survived whatever was done to it before."""
        self._moved_at = time.monotonic()
        self._is_down = False
        self.books.survived.update(self._open)
        self._open.clear()

    def _inject(self, fault: Fault) -> None:
        _LOG.info("%9d env steps: %s", self._env_steps, fault.kind)
        self.books.injected[fault.kind] += 1
        if getattr(self, "_" + fault.kind.replace(" ", "_"))(fault):
            self._open.append(fault.kind)
        else:
            self.books.failures.append(f"{fault.kind}: {fault}")

    def _actor_killed(self, fault: Fault) -> bool:
        self._fleet.actors[fault.actor].kill()
        return True

    def _actor_stalled(self, fault: Fault) -> bool:
        self._stall(self._fleet.actors[fault.actor].pid, fault.seconds)
        return True

    def _connection_cut(self, fault: Fault) -> bool:
        network = self._fleet.networks[fault.actor]
        network.cut()
        self._later.append((time.monotonic() + fault.seconds, network.heal))
        return True

    def _connection_reset(self, fault: Fault) -> bool:
        self._fleet.networks[fault.actor].reset()
        return True

    def _garbage_client(self, fault: Fault) -> bool:
        name, refused = send_garbage(self._fleet.address, self._spec, fault.variant)
        _LOG.info("%20s %s", name, "refused" if refused else "NOT REFUSED")
        return refused

    def _learner_stalled(self, fault: Fault) -> bool:
        self._stall(self._fleet.learner.pid, fault.seconds)
        return True

    def _learner_killed(self, fault: Fault) -> bool:
        return self._kill_and_verify(self._fleet.learner.pid)

    def _trainer_process_killed(self, fault: Fault) -> bool:
        pid = self._fleet.trainer_process()
        return pid is not None and self._kill_and_verify(pid)

    def _kill_and_verify(self, pid: int) -> bool:
        """Kills the learner, by one of its processes, and reads what it leaves behind."""
        self._end_what_is_over(math.inf)  # a process that is stopped would not end
        killed_at_s = time.time()
        os.kill(pid, signal.SIGKILL)
        self._fleet.learner.wait(PATIENCE_S)
        checkpoints = self._fleet.verify_checkpoints()
        self.books.checkpoints_verified += checkpoints.verified
        reached = [int(report["env_steps"]) for report in self._fleet.new_reports()]
        newest = checkpoints.newest or Newest(0, killed_at_s)
        lost = max([*reached, self._env_steps]) - newest.env_steps
        self.books.env_steps_lost.append(lost)
        # One that was just being written may have been finished after the kill.
        self.books.checkpoint_ages_s.append(max(killed_at_s - newest.saved_at_s, 0.0))
        _LOG.info("%20s lost %d env steps", "", lost)
        # It goes on from there, and survives only if it comes further than that.
        self._env_steps = newest.env_steps
        self._is_down = True
        return not checkpoints.broken

    def _stall(self, pid: int, seconds: float) -> None:
        def go_on() -> None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
        self._later.append((time.monotonic() + seconds, go_on))

    def _end_what_is_over(self, now: float) -> None:
        over = [end for due, end in self._later if due <= now]
        self._later = [(due, end) for due, end in self._later if due > now]
        for end in over:
            end()
