"""Actor processes on this machine, children of the process that runs the learner.

Called by its main thread. To the learner they are ordinary actors: they connect by a
private unix socket and know nothing about their parent process.
"""

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from learner.concurrency.priority import SHARED_CORE_NICENESS, let_others_go_first
from learner.serving.socket_directory import make_socket_directory
from seed.addresses import address_of_process
from seed.errors import SeedError

_LOG = logging.getLogger(__name__)

# How long an actor may take to close its environments when told to stop.
_STOP_GRACE_S = 10.0

# Number of last lines shown from the log of an actor that gave up.
_SHOWN_LOG_LINES = 40

# An evaluation actor steps only 4 environments, beside the 64 of an Atari preset's actor: it
# shares the cores and every inference batch with the training actors.
_EVAL_FLAGS = ("--role", "eval", "--num-groups", "1", "--envs-per-group", "4")


class LocalActors(Protocol):
    """Actor processes that live and die with the learner."""

    address: str
    """Where the actors expect the learner."""

    def start(self) -> None:
        """Starts the processes; the learner already listens."""
        ...

    def check(self) -> None:
        """Raises SeedError if an actor cannot go on."""
        ...

    def close(self) -> None:
        """Ends the processes."""
        ...


class ActorProcesses:
    """Training and evaluation actors, restarted if they are killed, from `start` to `close`.

    Their logs go to files of their own, not to the learner's terminal.
    """

    def __init__(
        self,
        num_actors: int,
        *,
        num_eval_actors: int = 0,
        log_dir: Path | None = None,
        extra_args: Sequence[str] = (),
        token_file: Path | None = None,
        ingress_processes: int = 0,
        share_memory: bool = True,
    ) -> None:
        """Chooses names and address of the actors; nothing runs yet.

        Args:
          num_actors: training actors; they follow the learner's task.
          num_eval_actors: actors that act greedily in a few environments.
          log_dir: `start` makes actor-<i>.log and eval-actor-<i>.log there; None: in a
            directory that `close` removes.
          extra_args: further flags of the `num_actors`.
          token_file: holds the learner's token; None if the learner asks for none.
          ingress_processes: as in the learner's config; the actors are spread over them.
          share_memory: pass steps through memory rather than gRPC, where that is possible.

        Raises:
          ConfigError: no directory can hold the actors' socket.
        """
        self._directory = make_socket_directory()
        self.address = f"unix:{self._directory / 'learner.sock'}"
        self._log_dir = log_dir or self._directory
        self._flags = {f"actor {i}": tuple(extra_args) for i in range(num_actors)}
        self._flags |= {f"eval actor {i}": _EVAL_FLAGS for i in range(num_eval_actors)}
        self._token_flags = ("--token-file", str(token_file)) if token_file else ()
        self._memory_flags = ("--share-memory",) if share_memory else ()
        self._num_sockets = max(1, ingress_processes)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Starts the processes; the learner already listens on `address`."""
        for name in self._flags:
            self._processes[name] = self._spawn(name)

    def check(self) -> None:
        """Restarts actors that were killed; raises SeedError if an actor gave up."""
        for name, process in self._processes.items():
            code = process.poll()
            if code is None:
                continue
            if code >= 0:
                log = self._log_path(name).read_text(errors="replace").splitlines()
                shown = "\n".join(log[-_SHOWN_LOG_LINES:])
                raise SeedError(f"local {name} exited with code {code}:\n{shown}")
            _LOG.warning("local %s was killed by signal %d; starting another", name, -code)
            self._processes[name] = self._spawn(name)

    def close(self) -> None:
        """Ends the processes and waits for them."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(_STOP_GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _log_path(self, name: str) -> Path:
        return self._log_dir / f"{name.replace(' ', '-')}.log"

    def _spawn(self, name: str) -> subprocess.Popen[bytes]:
        socket_index = list(self._flags).index(name) % self._num_sockets
        address = address_of_process(self.address, socket_index)
        command = [sys.executable, "-m", "actors", "--learner", address]
        command += ["--exit-with-parent", str(os.getpid()), *self._memory_flags]
        with self._log_path(name).open("ab") as log:
            # Its own process group: Ctrl-C reaches only the learner, which then ends its actors.
            # Not its own session: Linux would share the cores evenly among sessions, so that the
            # niceness would have no effect.
            process = subprocess.Popen(
                [*command, *self._token_flags, *self._flags[name]],
                stdin=subprocess.DEVNULL,
                stderr=log,
                process_group=0,
            )
        let_others_go_first(process.pid, SHARED_CORE_NICENESS)
        _LOG.info("local %s is process %d", name, process.pid)
        return process
