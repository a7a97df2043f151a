"""Injects faults into a fleet: one method for each kind of fault, called by the run's thread.

Timers end the faults that last, because that thread may be waiting for a learner that is
itself stalled. `run.py` finds out what a fault has cost.
"""

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable

import grpc

from seed.specs import EnvSpec
from seed_bench.chaos.fleet import Fleet
from seed_bench.chaos.garbage import choose_client
from seed_bench.chaos.schedule import Fault

_LOG = logging.getLogger(__name__)

# A killed process that does not end within this time has hung.
_END_S = 60.0

# If no checkpoint is begun within this time, none will be.
_SAVE_S = 60.0
_SAVE_TICK_S = 0.001


class FaultError(Exception):
    """A fault that could not be injected, or a garbage client that was not refused."""


class Saboteur:
    """Injects faults into one fleet, until `close`."""

    def __init__(self, fleet: Fleet, spec: EnvSpec) -> None:
        """`spec` is that of the run's environment; some garbage clients send it."""
        self._fleet = fleet
        self._spec = spec
        self._timers: list[threading.Timer] = []

    def inject(self, fault: Fault) -> float:
        """Injects a fault; returns when it is over, on the clock of `time.monotonic`.

        Raises:
          FaultError: the fault could not be injected, or a client was not refused.
        """
        return getattr(self, "_" + fault.kind.replace(" ", "_"))(fault) + time.monotonic()

    def close(self) -> None:
        """Ends the faults that still last."""
        for timer in self._timers:
            timer.cancel()
            timer.join()
            timer.function()

    def _actor_killed(self, fault: Fault) -> float:
        self._fleet.actors[fault.actor].kill()
        return 0.0

    def _actor_stalled(self, fault: Fault) -> float:
        return self._stall(self._fleet.actors[fault.actor].pid, fault.seconds)

    def _connection_cut(self, fault: Fault) -> float:
        network = self._fleet.networks[fault.actor]
        network.cut()
        return self._later(fault.seconds, network.heal)

    def _connection_reset(self, fault: Fault) -> float:
        self._fleet.networks[fault.actor].reset()
        return 0.0

    def _garbage_client(self, fault: Fault) -> float:
        name, send = choose_client(fault.variant)
        try:
            is_refused = send(self._fleet.address, self._spec)
        except (grpc.RpcError, OSError) as error:
            raise FaultError(f"{name}: {error}") from error
        if not is_refused:
            raise FaultError(f"{name}: was not refused")
        _LOG.info("%20s %s: refused", "", name)
        return 0.0

    def _learner_stalled(self, fault: Fault) -> float:
        return self._stall(self._fleet.learner.pid, fault.seconds)

    def _trainer_process_stalled(self, fault: Fault) -> float:
        return self._stall(self._trainer_process(), fault.seconds)

    def _learner_killed(self, fault: Fault) -> float:
        return self._end_learner(self._fleet.learner.pid)

    def _killed_while_saving(self, fault: Fault) -> float:
        """Imitates a loss of power: both of the learner's processes end at once."""
        trainer = self._trainer_process()
        earlier = self._fleet.unfinished_saves()
        deadline = time.monotonic() + _SAVE_S
        while self._fleet.unfinished_saves() <= earlier:
            if time.monotonic() > deadline:
                raise FaultError(f"no checkpoint was begun within {_SAVE_S:g} s")
            time.sleep(_SAVE_TICK_S)
        return self._end_learner(trainer, self._fleet.learner.pid)

    def _trainer_process_killed(self, fault: Fault) -> float:
        return self._end_learner(self._trainer_process())

    def _trainer_process(self) -> int:
        pid = self._fleet.trainer_process()
        if pid is None:
            raise FaultError("there is no trainer process")
        return pid

    def _end_learner(self, *pids: int) -> float:
        """Kills processes of the learner, and waits until the learner has ended."""
        for pid in pids:
            _signal(pid, signal.SIGKILL)
        # A process that is stalled now must continue to notice the end of the other.
        for other in (self._fleet.learner.pid, self._fleet.trainer_process()):
            _signal(other, signal.SIGCONT)
        self._fleet.learner.wait(_END_S)
        return 0.0

    def _stall(self, pid: int, seconds: float) -> float:
        _signal(pid, signal.SIGSTOP)
        return self._later(seconds, lambda: _signal(pid, signal.SIGCONT))

    def _later(self, seconds: float, end: Callable[[], None]) -> float:
        self._timers = [timer for timer in self._timers if timer.is_alive()]
        timer = threading.Timer(seconds, end)
        timer.start()
        self._timers.append(timer)
        return seconds


def _signal(pid: int | None, number: signal.Signals) -> None:
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
