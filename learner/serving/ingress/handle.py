"""The learner's handle on its ingress processes. It has the methods of `ServerThread`.

Each process has a supervisor: a thread that reads the process's steps and notices its end. If
the process was killed, the thread starts another. Two more threads answer its calls.
"""

import contextlib
import itertools
import logging
import multiprocessing
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.util import Finalize
from typing import Any

from learner.concurrency.cpu_time import cpu_seconds_of_thread
from learner.concurrency.pipe_rpc import OtherProcessError, serve_calls
from learner.concurrency.threads import start_thread
from learner.serving.ingress.link import Link
from learner.serving.ingress.main import Ends, Settings, run_ingress_process
from learner.serving.ingress.ports import HeldAddress
from learner.serving.reception import Reception
from learner.serving.session import Timeouts
from seed.addresses import address_of_process, check_address
from seed.errors import ConfigError, SeedError, expected
from seed.logs import take_record
from seed.search_path import spawn
from seed.security import PLAIN_TEXT, Security

_LOG = logging.getLogger(__name__)

# After more early deaths in a row than this, a process is not started again.
_MAX_EARLY_DEATHS = 3
_EARLY_S = 60.0

# How long a process may take to end its streams.
_STOP_GRACE_S = 10.0

Functions = Mapping[str, Callable[..., Any]]


class IngressProcesses:
    """Serves actors at the same addresses by several processes, from `start` to `close`."""

    def __init__(
        self,
        reception: Reception,
        addresses: Sequence[str],
        on_failure: Callable[[BaseException], None],
        security: Security = PLAIN_TEXT,
        timeouts: Timeouts | None = None,
        *,
        num_processes: int,
    ) -> None:
        """Nothing runs yet.

        Raises:
          ConfigError: this system cannot share a port or pass on memory.
        """
        if sys.platform != "linux":
            raise ConfigError(expected("ingress_processes", "0, except on Linux", num_processes))
        self._reception = reception
        self._addresses = addresses
        self._on_failure = on_failure
        self._security = security
        self._timeouts = timeouts or Timeouts()
        self._num_processes = num_processes
        self._held: list[HeldAddress] = []
        self._supervisors: list[_Supervisor] = []

    @property
    def pids(self) -> list[int]:
        """Ids of the processes that run now."""
        return [supervisor.pid for supervisor in self._supervisors]

    def start(self) -> list[str]:
        """Returns the addresses bound (port 0 replaced by the real one). All processes share a
        TCP port; each has a unix socket of its own.

        Raises:
          ConfigError: an address that cannot be bound.
        """
        for address in self._addresses:
            self._held.append(HeldAddress(address))
        places = [
            tuple(address_of_process(held.address, index) for held in self._held)
            for index in range(self._num_processes)
        ]
        for address in itertools.chain(*places):
            check_address("listen", address)  # its number may have made a path too long
        for index, addresses in enumerate(places):
            settings = Settings(addresses, self._security, self._timeouts, self._reception.limits)
            self._supervisors.append(
                _Supervisor(index, settings, self._reception, self._on_failure)
            )
        bound = [supervisor.bound.result() for supervisor in self._supervisors]
        return list(dict.fromkeys(address for same in zip(*bound, strict=True) for address in same))

    def complete(self) -> None:
        """Tells all actors that the run is complete: those that are here, and those that come."""
        for supervisor in self._supervisors:
            supervisor.complete()

    def close(self) -> None:
        """Ends every stream and waits for the processes."""
        for supervisor in self._supervisors:
            supervisor.stop()
        for supervisor in self._supervisors:
            supervisor.join()
        for held in self._held:
            held.close()


class _Supervisor:
    """Keeps one process running."""

    def __init__(
        self,
        index: int,
        settings: Settings,
        reception: Reception,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.bound: Future[list[str]] = Future()
        """The addresses of the first process, or the error that keeps it from listening."""
        self._name = f"ingress process {index}"
        self._settings = settings
        self._reception = reception
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._is_stopping = False
        self._process = self._start()
        self._thread = start_thread(f"ingress {index}", self._run, self._fail)

    @property
    def pid(self) -> int:
        """Id of the process that runs now."""
        return self._process.pid

    def complete(self) -> None:
        """Asks the process to tell its actors that the run is complete."""
        with self._lock:
            self._process.complete()

    def stop(self) -> None:
        """Asks the process to end its streams and then itself."""
        with self._lock:
            self._is_stopping = True
            self._process.stop()

    def join(self) -> None:
        """Waits for the process to end, and kills it after `_STOP_GRACE_S` seconds."""
        self._thread.join(_STOP_GRACE_S)
        if self._thread.is_alive():
            self._process.kill()
            self._thread.join()

    def _start(self) -> "_Process":
        return _Process(
            self._settings,
            self._reception,
            {"listening": self._listens, "failed": self._fail, "log": take_record},
            name=self._name,
        )

    def _run(self) -> None:
        early_deaths = 0
        while True:
            started_at = time.monotonic()
            code = self._process.carry()
            with self._lock:
                if self._is_stopping:
                    return
                if code >= 0:
                    raise OtherProcessError(f"{self._name} ended with code {code}")
                is_early = time.monotonic() - started_at < _EARLY_S
                early_deaths = early_deaths + 1 if is_early else 0
                if early_deaths > _MAX_EARLY_DEATHS:
                    raise SeedError(
                        f"{self._name} was killed {early_deaths} times, each within "
                        f"{_EARLY_S:g} s of its start, at last by signal {-code}"
                    )
                _LOG.warning("%s was killed by signal %d; starting another", self._name, -code)
                self._process = self._start()

    def _listens(self, addresses: list[str]) -> None:
        if not self.bound.done():
            self.bound.set_result(addresses)

    def _fail(self, error: BaseException) -> None:
        try:
            self.bound.set_exception(error)
        except InvalidStateError:
            self._on_failure(error)


class _Process:
    """One process, from its start to its end."""

    def __init__(
        self, settings: Settings, reception: Reception, functions: Functions, *, name: str
    ) -> None:
        # Spawned, not forked: this process has threads.
        context = multiprocessing.get_context("spawn")
        served_calls, calls = context.Pipe()
        served_admissions, admissions = context.Pipe()
        read_steps, steps = context.Pipe(duplex=False)
        answers, write_answers = context.Pipe(duplex=False)
        stopped, self._stop = context.Pipe(duplex=False)
        ends = Ends(calls, admissions, steps, answers, stopped)
        self._process = spawn(context, run_ingress_process, (settings, ends), name=name)
        self._metrics = reception.metrics
        _LOG.info("%s is process %d", name, self.pid)
        for connection in ends:
            connection.close()  # else the pipe would stay open when the process ends
        # At exit, an interpreter waits for its child processes even if `stop` was not called.
        Finalize(self, self._stop.close, exitpriority=0)
        self._link = Link(reception, read_steps, write_answers)
        _serve(served_admissions, {"admit": reception.admit})
        self._calls = _serve(
            served_calls,
            {
                "make_task": lambda: reception.make_task().SerializeToString(),
                "count_refused": reception.count_refused,
                "watch_server": self._watch_server,
                "seat": self._link.seat,
                "share_memory": self._link.share_memory,
                "leave": self._link.leave,
                "release": self._link.release,
                **functions,
            },
        )

    @property
    def pid(self) -> int:
        assert self._process.pid is not None, "it has been started"
        return self._process.pid

    def carry(self) -> int:
        """Carries steps until the process has ended; returns its exit code."""
        self._link.carry()
        self._calls.join()
        self._process.join()
        self._link.cut()
        assert self._process.exitcode is not None
        return self._process.exitcode

    def _watch_server(self, thread_id: int) -> None:
        self._metrics.watch_cpu("server", partial(cpu_seconds_of_thread, self.pid, thread_id))

    def complete(self) -> None:
        """Asks the process to tell its actors that the run is complete."""
        with contextlib.suppress(OSError):  # it was killed: its actors reconnect to another
            self._stop.send_bytes(b"complete")

    def stop(self) -> None:
        """Asks the process to end."""
        self._stop.close()

    def kill(self) -> None:
        """Kills the process."""
        self._process.kill()


def _serve(connection: Connection, functions: Functions) -> threading.Thread:
    thread = threading.Thread(target=serve_calls, args=(connection, functions), daemon=True)
    thread.start()
    return thread
