"""One learner a run directory: a lock that names its holder, and that no dead holder keeps.

The main thread takes and releases it; a thread of the lock keeps it fresh. Whether the holder that
the lock file names is alive is told in two ways:

- On one machine by `flock`. The system releases it when the process ends, also by kill -9. That
  holds in containers, where a restart may repeat or change host name and process id.
- On another machine of a shared file system by the file's age: a holder touches the file every few
  seconds. Both times come from the file system, so that no machine's clock matters.

The lock file stays in the directory, empty while nobody holds it.
"""

import contextlib
import datetime
import errno
import fcntl
import json
import logging
import os
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from seed.errors import RunInUseError, expected

_LOG = logging.getLogger(__name__)

# Seconds that a newcomer on the same machine gives a holder to write its name.
_NAME_S = 2.0
# Seconds for other newcomers' attempts to show, where there is no `flock`.
_SETTLE_S = 0.3
_POLL_S = 0.25


class Timing(NamedTuple):
    """How soon a holder on another machine is known to be dead."""

    heartbeat_s: float = 5.0
    """Seconds between two touches of the file."""
    lease_s: float = 60.0
    """A file that nobody has touched for so long has no living holder."""


class Holder(NamedTuple):
    """The process that holds a lock, as its file names it."""

    host: str
    pid: int
    since: str
    """Date and time in UTC."""
    machine: str
    """The same for all containers of a machine, until it boots."""
    pid_namespace: str
    """Where `pid` means this process."""
    started: str
    """When the process started, in clock ticks after boot: another process may get its id."""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}"


class RunLock:
    """A lock on one file, from its making to `release`."""

    def __init__(
        self,
        path: Path,
        *,
        timing: Timing | None = None,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Takes the lock. Waits only if another machine may have a holder that died lately.

        Args:
          path: the file, in the run directory; made if missing.
          timing: equal for all learners that share the directory.
          is_stopped: whether to give up waiting.

        Raises:
          RunInUseError: another learner has the lock; the message names it.
          OSError: the file cannot be written.
        """
        self._path = path
        self._timing = timing or Timing()
        self.holder = this_process()
        self.lost_to: Holder | None = None
        """The learner that took this lock for dead; the file system was away for too long."""
        self._descriptor = self._take(is_stopped)
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._keep_fresh, name="run-lock", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Lets others have the lock."""
        self._released.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            if _read_holder(self._path) == self.holder:
                os.truncate(self._path, 0)
        os.close(self._descriptor)

    def _take(self, is_stopped: Callable[[], bool]) -> int:
        """Returns the descriptor of the file, which names this process now."""
        watch = _Watch(self._path, self._timing.lease_s)
        while (descriptor := self._try_to_take(watch)) is None:
            if is_stopped():
                raise _in_use(self._path, _read_holder(self._path))
            time.sleep(_POLL_S)
        return descriptor

    def _try_to_take(self, watch: "_Watch") -> int | None:
        """Returns the descriptor; None: it must be tried again."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, descriptor)
            has_flock = _try_flock(descriptor)
            if not _is_still_at(descriptor, self._path):
                return None  # a failed start has removed it meanwhile
            holder = _read_holder(self._path)
            is_alive = _is_alive(holder, has_flock)
            if is_alive is None:
                is_alive = watch.is_alive(holder)
            if is_alive:
                raise _in_use(self._path, holder)
            if is_alive is None:
                return None
            if not has_flock:
                return self._replace_file()
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, self._name, 0)
            stack.pop_all()
            return descriptor

    def _replace_file(self) -> int:
        """Puts a new file in place of a dead holder's; returns its descriptor.

        A dead holder's `flock` may live on in a file server, and some file systems have none. A
        new file has a lock of its own.
        """
        aside = self._path.with_name(f".{self._path.name}.{uuid.uuid4().hex}")
        descriptor = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        _try_flock(descriptor)
        os.pwrite(descriptor, self._name, 0)
        os.replace(aside, self._path)
        time.sleep(_SETTLE_S)  # of newcomers at the same moment, the last one stays
        winner = _read_holder(self._path)
        if winner != self.holder:
            os.close(descriptor)
            raise _in_use(self._path, winner)
        return descriptor

    @property
    def _name(self) -> bytes:
        return json.dumps(self.holder._asdict()).encode() + b"\n"

    def _keep_fresh(self) -> None:
        while not self._released.wait(self._timing.heartbeat_s):
            # A file system that is away for a moment costs nothing: the next touch will do.
            with contextlib.suppress(OSError):
                holder = _read_holder(self._path)
                if holder is not None and holder != self.holder:
                    self.lost_to = holder
                    return
                os.utime(self._path)


class _Watch:
    """Watches a file whose holder cannot be asked for: another machine's, or one without a name."""

    def __init__(self, path: Path, lease_s: float) -> None:
        self._path = path
        self._lease_s = lease_s
        self._seen: tuple[Holder | None, int] | None = None
        self._seen_at_s = 0.0

    def is_alive(self, holder: Holder | None) -> bool | None:
        """Returns whether the holder lives once that is known, None until then.

        Args:
          holder: as the file names it now; None: somebody holds it who has not written a name.
        """
        with self._path.open("rb") as file:  # NFS asks the server again for a file it opens
            seen = (holder, os.fstat(file.fileno()).st_mtime_ns)
        if self._seen is None or self._seen[0] is None:
            if self._seen is None:
                self._seen_at_s = time.monotonic()
            self._seen = seen
            return self._first_look(holder, seen[1])
        if seen != self._seen:
            return True
        return False if time.monotonic() - self._seen_at_s > self._lease_s else None

    def _first_look(self, holder: Holder | None, touched_ns: int) -> bool | None:
        if holder is None:
            return True if time.monotonic() - self._seen_at_s > _NAME_S else None
        if _file_system_time_ns(self._path.parent) - touched_ns > self._lease_s * 1e9:
            return False
        _LOG.warning(
            "waiting up to %g s, because %s may still be used by %s",
            *(self._lease_s, self._path.parent, holder),
        )
        return None


def this_process() -> Holder:
    """Returns what this process writes into the locks that it takes."""
    return Holder(
        host=socket.gethostname(),
        pid=os.getpid(),
        since=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        machine=_machine(),
        pid_namespace=_pid_namespace(),
        started=_started(os.getpid()) or "",
    )


def _is_alive(holder: Holder | None, has_flock: bool | None) -> bool | None:
    """Returns whether the named holder lives; None: its file must be watched.

    Args:
      holder: None if the file names nobody.
      has_flock: whether this process got the `flock`; None: the file system has none.
    """
    if holder is None:
        return None if has_flock is False else False
    if holder.machine != _machine():
        return None
    if has_flock:
        return False
    if holder.started and holder.pid_namespace == _pid_namespace():
        return holder.started == _started(holder.pid)
    return True if has_flock is False else None


def _in_use(path: Path, holder: Holder | None) -> RunInUseError:
    wanted = "a directory that no other learner uses"
    got = f"{path.parent}, used by {holder or 'another learner'}"
    return RunInUseError(expected("run_dir", wanted, got))


def _try_flock(descriptor: int) -> bool | None:
    """Returns whether this process has the file's `flock` now; None: there is no such thing."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
            return None
        raise
    return True


def _is_still_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _read_holder(path: Path) -> Holder | None:
    """Returns the holder that the file names; None if it names nobody."""
    try:
        return Holder(**json.loads(path.read_bytes()))
    except (ValueError, TypeError):  # empty, or being written
        return None


def _file_system_time_ns(directory: Path) -> int:
    with tempfile.TemporaryFile(dir=directory) as file:
        return os.fstat(file.fileno()).st_mtime_ns


def _machine() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux
        return socket.gethostname()


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """Returns when a process started, in clock ticks after boot; None if it does not run."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except (OSError, ValueError):
        return None
    return None if state in "ZX" else fields[18]
