"""Actor processes on this machine, children of the process that runs the learner.

Called by its main thread. The learner sees ordinary actors: they come over a
private unix socket and know nothing of their parent.
"""

import logging
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from seed.errors import SeedError

_LOG = logging.getLogger(__name__)

# How long an actor may take to close its environments when told to stop.
_STOP_GRACE_S = 10.0

# Of the log of an actor that gave up, so much is shown.
_SHOWN_LOG_LINES = 40


class ActorProcesses:
    """`num_actors` actors, restarted when killed, from `start` to `close`.

    What they log goes to files of their own, not across the learner's terminal.
    """

    def __init__(
        self, num_actors: int, *, log_dir: Path | None = None, extra_args: Sequence[str] = ()
    ) -> None:
        """Logs go to `log_dir`/actor-<i>.log, made at `start`; None: kept until `close`."""
        self._directory = Path(tempfile.mkdtemp(prefix="seed-"))
        self.address = f"unix:{self._directory / 'learner.sock'}"
        self._num_actors = num_actors
        self._log_dir = log_dir or self._directory
        self._extra_args = extra_args
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Starts the processes; the learner listens on `address` already."""
        self._processes = [self._spawn(index) for index in range(self._num_actors)]

    def check(self) -> None:
        """Replaces actors that were killed; raises SeedError if one gave up."""
        for index, process in enumerate(self._processes):
            code = process.poll()
            if code is None:
                continue
            if code >= 0:
                log = self._log_path(index).read_text(errors="replace").splitlines()
                shown = "\n".join(log[-_SHOWN_LOG_LINES:])
                raise SeedError(f"local actor {index} exited with code {code}:\n{shown}")
            _LOG.warning("local actor %d was killed by signal %d; starting another", index, -code)
            self._processes[index] = self._spawn(index)

    def close(self) -> None:
        """Ends the processes and waits for them."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(_STOP_GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _log_path(self, index: int) -> Path:
        return self._log_dir / f"actor-{index}.log"

    def _spawn(self, index: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "actors", "--learner", self.address]
        with self._log_path(index).open("ab") as log:
            # Own session: Ctrl-C reaches the learner, which then ends its actors in order.
            process = subprocess.Popen(
                [*command, "--exit-with-parent", *self._extra_args],
                stdin=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        _LOG.info("local actor %d is process %d", index, process.pid)
        return process
