"""A run directory in the hands of one learner, from the start of a run to its end.

Used by the main thread. Makes the directory and locks it; a start that fails leaves nothing of
what it made.
"""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from learner.config.args import LearnerArgs, stem_of
from learner.config.earlier_runs import RUNS
from learner.config.resuming import not_new
from learner.config.run_dir import RunDir
from learner.config.torchrun import Place
from learner.run_lock import RunLock
from seed.errors import ConfigError, SeedError, expected


class RunClaim:
    """A run directory that no other learner uses until `close`."""

    def __init__(
        self,
        preset: str,
        args: LearnerArgs,
        place: Place,
        *,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Makes the directory if it is missing, and locks it.

        Args:
          preset: names the directory, if `args` names none.
          args: the directory, and whether to go on with the run that is there.
          place: of this learner among those that train together: the first locks for all.
          is_stopped: whether to give up waiting for a learner that may be dead.

        Raises:
          RunInUseError: another learner uses the directory.
          ConfigError: it holds a run that is not to be resumed, or it cannot be written.
        """
        self._made: list[Path] = []
        self._lock: RunLock | None = None
        self._is_kept = False
        try:
            with writes_to(args.run_dir or RUNS):
                self.run_dir = RunDir(self._make(preset, args.run_dir))
                self._has_new_lock = not self.run_dir.lock.exists()
                if place.rank:
                    return
                self._lock = self._take_lock(is_stopped)
                self._earlier = set(self._files_of_a_start())
                if not args.resume and self.run_dir.has_results:
                    raise not_new(self.run_dir)
        except BaseException:
            self.close()
            raise

    @property
    def lost(self) -> SeedError | None:
        """Why the directory is no longer this learner's; None while it is."""
        if self._lock is None or self._lock.lost_to is None:
            return None
        wanted = "to be used by this learner until its end"
        got = f"{self._lock.lost_to}, which took this learner for dead"
        return SeedError(expected(f"run_dir {self.run_dir.path}", wanted, got))

    def keep(self) -> None:
        """Says that the start has succeeded, so that its files stay, even after an error."""
        self._is_kept = True

    def close(self) -> None:
        """Leaves the directory to others; after a start that failed, removes what that made."""
        if self._lock is not None:
            if not self._is_kept and self.lost is None:
                self._remove_files()
            self._lock.release()
            self._lock = None
        if not self._is_kept:
            for directory in reversed(self._made):
                with contextlib.suppress(OSError):  # it has other files, perhaps another learner's
                    directory.rmdir()

    def _remove_files(self) -> None:
        """Removes what has come since this learner has the lock, and the lock file."""
        made = {*self._files_of_a_start()} - self._earlier
        if self._has_new_lock:
            made.add(self.run_dir.lock)
        for path in made:
            with contextlib.suppress(OSError):
                path.unlink()

    def _make(self, preset: str, path: Path | None) -> Path:
        if path is not None:
            with contextlib.suppress(FileExistsError):
                self._make_directory(path)
            return path
        name = f"{stem_of(preset)}-{time.strftime('%Y%m%d-%H%M%S')}"
        for number in itertools.count(1):
            path = RUNS / (name if number == 1 else f"{name}-{number}")
            with contextlib.suppress(FileExistsError):  # a run of the same second
                self._make_directory(path)
                return path
        raise AssertionError("numbers do not end")

    def _make_directory(self, path: Path) -> None:
        """Makes a new directory; raises FileExistsError if it is there."""
        missing = [parent for parent in reversed(path.parents) if not parent.exists()]
        path.mkdir(parents=True)
        self._made = [*missing, path]

    def _take_lock(self, is_stopped: Callable[[], bool]) -> RunLock:
        while True:
            try:
                return RunLock(self.run_dir.lock, is_stopped=is_stopped)
            except FileNotFoundError:  # a start that failed has just removed the directory
                self._make_directory(self.run_dir.path)

    def _files_of_a_start(self) -> list[Path]:
        """Returns what is there of the files that a learner makes before it serves."""
        run_dir = self.run_dir
        files = [run_dir.config, run_dir.metrics]
        return [*filter(Path.exists, files), *run_dir.path.glob("events.out.tfevents.*")]


@contextlib.contextmanager
def writes_to(directory: Path) -> Iterator[None]:
    """Turns errors of the system inside the context into errors that name the run directory."""
    try:
        yield
    except OSError as error:
        wanted = "a directory that can be written"
        got = f"{error.filename or directory}: {error.strerror}"
        raise ConfigError(expected("run_dir", wanted, got)) from error
