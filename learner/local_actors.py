"""Actor processes on this machine, children of the process that runs the learner.

Called by its main thread. To the learner they are ordinary actors: they connect by a
private unix socket and know nothing about their parent process.
"""

import logging
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from learner.concurrency.priority import SHARED_CORE_NICENESS, let_others_go_first
from learner.concurrency.process_group import end_group, name_of_signal
from learner.serving.socket_directory import make_socket_directory
from seed.addresses import address_of_process
from seed.errors import SeedError
from seed.search_path import python_module

_LOG = logging.getLogger(__name__)

# How long an actor may take to close its environments when told to stop.
_STOP_GRACE_S = 10.0

# The part of an actor's log that is shown when the actor cannot go on. After a signal the log
# ends with the stacks of all its threads.
_SHOWN_LOG_LINES = 40
_SHOWN_LOG_LINES_OF_SIGNAL = 100
_SHOWN_LOG_BYTES = 64 * 1024

# An actor that is killed is started again, but not for ever. After so many deaths in a row
# without one step, or so many within a minute of the actor's start, it cannot go on.
_MAX_FRUITLESS_DEATHS = 5
_MAX_EARLY_DEATHS = 20
_EARLY_S = 60.0

# Deaths that follow a step and are early: so many are followed by a new actor at once.
_FREE_EARLY_DEATHS = 3
_FIRST_DELAY_S = 0.5
_LONGEST_DELAY_S = 30.0

# What kills a process so, for people who have not met the signal.
_CAUSES = {
    signal.SIGKILL: "perhaps the system ran out of memory",
    signal.SIGABRT: "native code gave up",
    signal.SIGSEGV: "native code used memory that is not its own",
    signal.SIGBUS: "perhaps shared memory or a disk is full",
    signal.SIGILL: "native code for another processor",
}

# An evaluation actor steps only 4 environments, beside the 64 of an Atari preset's actor: it
# shares the cores and every inference batch with the training actors.
_EVAL_FLAGS = ("--role", "eval", "--num-groups", "1", "--envs-per-group", "4")


class LocalActors(Protocol):
    """Actor processes that live and die with the learner."""

    address: str
    """Where the actors expect the learner."""

    def start(self, log_dir: Path | None = None) -> None:
        """Starts the processes; the learner already listens.

        Args:
          log_dir: gets actor-<i>.log and eval-actor-<i>.log; None: they go to a directory that
            `close` removes.
        """
        ...

    def check(self) -> None:
        """Raises SeedError if an actor cannot go on."""
        ...

    def close(self) -> None:
        """Ends the processes."""
        ...


class ActorProcesses:
    """Training and evaluation actors, restarted if they are killed, from `start` to `close`.

    Their logs, and what environments print, go to files of their own, not to the learner's
    terminal.
    """

    def __init__(
        self,
        num_actors: int,
        *,
        num_eval_actors: int = 0,
        extra_args: Sequence[str] = (),
        token_file: Path | None = None,
        ingress_processes: int = 0,
        share_memory: bool = True,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Chooses names and address of the actors; nothing runs yet.

        Args:
          num_actors: training actors; they follow the learner's task.
          num_eval_actors: actors that act greedily in a few environments.
          extra_args: further flags of the `num_actors`.
          token_file: holds the learner's token; None if the learner asks for none.
          ingress_processes: as in the learner's config; the actors are spread over them.
          share_memory: pass steps through memory rather than gRPC, where that is possible.
          now: the clock, in seconds.

        Raises:
          ConfigError: no directory can hold the actors' socket.
        """
        self._directory = make_socket_directory()
        self.address = f"unix:{self._directory / 'learner.sock'}"
        self._flags = {f"actor {i}": tuple(extra_args) for i in range(num_actors)}
        self._flags |= {f"eval actor {i}": _EVAL_FLAGS for i in range(num_eval_actors)}
        self._token_flags = ("--token-file", str(token_file)) if token_file else ()
        self._memory_flags = ("--share-memory",) if share_memory else ()
        self._num_sockets = max(1, ingress_processes)
        self._now = now
        self._actors: list[_Actor] = []

    def start(self, log_dir: Path | None = None) -> None:
        """Starts the processes; the learner already listens on `address`. See `LocalActors`."""
        for index, name in enumerate(self._flags):
            log = (log_dir or self._directory) / f"{name.replace(' ', '-')}.log"
            self._actors.append(_Actor(name, self._command(index, name), log, self._now))

    def check(self) -> None:
        """Restarts actors that were killed; raises SeedError if an actor cannot go on."""
        for actor in self._actors:
            actor.check()

    def close(self) -> None:
        """Ends the processes, with those that they have started, and waits for them."""
        for actor in self._actors:
            actor.stop()
        for actor in self._actors:
            actor.join()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _command(self, index: int, name: str) -> list[str]:
        address = address_of_process(self.address, index % self._num_sockets)
        # faulthandler: the log of an actor that dies in native code says where.
        python, *words = python_module("actors", "--learner", address)
        return [
            *(python, "-X", "faulthandler", *words),
            *("--exit-with-parent", str(os.getpid()), *self._memory_flags),
            *(*self._token_flags, *self._flags[name]),
        ]


class _Actor:
    """One actor: its process, and the next one if that is killed."""

    def __init__(self, name: str, command: list[str], log: Path, now: Callable[[], float]) -> None:
        """Starts the process."""
        self._name = name
        self._command = command
        self._log = log
        self._now = now
        self._fruitless_deaths = 0
        self._early_deaths = 0
        self._restart_at: float | None = None
        self._has_stepped = False
        self._told: int | None = None
        self._spawn()

    def check(self) -> None:
        """Starts another process if this one was killed; raises SeedError if that is no use."""
        if self._restart_at is not None:
            if self._now() >= self._restart_at:
                self._restart_at = None
                self._spawn()
            return
        code = self._process.poll()
        if code is None:
            return
        self._bury()
        if code >= 0:
            shown = self._last_lines(_SHOWN_LOG_LINES)
            raise SeedError(f"local {self._name} exited with code {code}:\n{shown}")
        delay_s = self._count_death(-code)
        if not delay_s:
            self._spawn()
            return
        self._restart_at = self._now() + delay_s

    def stop(self) -> None:
        """Asks the process to end."""
        self._process.terminate()

    def join(self) -> None:
        """Waits for the process to end, and kills it if that takes long."""
        try:
            self._process.wait(_STOP_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._bury()

    def _spawn(self) -> None:
        told, tell = os.pipe()
        os.set_blocking(told, False)
        with self._log.open("ab") as log:
            # Its own process group: Ctrl-C reaches only the learner, which then ends its actors.
            # Not its own session: Linux would share the cores evenly among sessions, so that the
            # niceness would have no effect.
            self._process = subprocess.Popen(
                [*self._command, "--first-step-fd", str(tell)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
                pass_fds=(tell,),
            )
        os.close(tell)
        self._told = told
        self._started_at = self._now()
        let_others_go_first(self._process.pid, SHARED_CORE_NICENESS)
        _LOG.info("local %s is process %d", self._name, self._process.pid)

    def _bury(self) -> None:
        """Ends what the ended process has left: its workers, its environments' own processes."""
        if self._told is None:
            return  # it ended before, and no other has been started
        end_group(self._process.pid)
        try:
            self._has_stepped = bool(os.read(self._told, 1))
        except BlockingIOError:  # a process that is ending may still hold the other end
            self._has_stepped = False
        os.close(self._told)
        self._told = None

    def _count_death(self, number: int) -> float:
        """Logs a death by a signal; returns the seconds to wait before the next process."""
        is_early = self._now() - self._started_at < _EARLY_S
        self._early_deaths = self._early_deaths + 1 if is_early else 0
        self._fruitless_deaths = 0 if self._has_stepped else self._fruitless_deaths + 1
        cause = name_of_signal(number)
        if number in _CAUSES:
            cause += f", {_CAUSES[signal.Signals(number)]}"
        self._give_up_after_many(cause)
        count = self._fruitless_deaths or max(0, self._early_deaths - _FREE_EARLY_DEATHS)
        delay_s = min(_FIRST_DELAY_S * 2 ** (count - 1), _LONGEST_DELAY_S) if count else 0.0
        when = f" in {delay_s:g} s" if delay_s else ""
        _LOG.warning("local %s was killed by %s; starting another%s", self._name, cause, when)
        return delay_s

    def _give_up_after_many(self, cause: str) -> None:
        if self._fruitless_deaths >= _MAX_FRUITLESS_DEATHS:
            when = f"{self._fruitless_deaths} times in a row before its first step"
        elif self._early_deaths >= _MAX_EARLY_DEATHS:
            when = f"{self._early_deaths} times in a row within {_EARLY_S:g} s of its start"
        else:
            return
        raise SeedError(
            f"local {self._name} was killed {when}, at last by {cause}. The end of {self._log}:\n"
            f"{self._last_lines(_SHOWN_LOG_LINES_OF_SIGNAL)}"
        )

    def _last_lines(self, count: int) -> str:
        with self._log.open("rb") as log:
            log.seek(max(0, self._log.stat().st_size - _SHOWN_LOG_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-count:])
