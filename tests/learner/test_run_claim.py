"""The directory of a run: who gets which one, and what a start that fails leaves."""

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from learner.config.args import LearnerArgs
from learner.config.presets import PRESETS
from learner.config.torchrun import Place
from learner.run_claim import RunClaim
from learner.run_lock import RunLock, this_process
from seed.errors import ConfigError, RunInUseError

CONFIG = PRESETS["cartpole-vtrace"].config
PRESET = "my_presets:SLOW"

# A learner's claim, at a time of day that is the same in all processes.
CLAIM = """
import sys, time
from pathlib import Path
from learner.config.args import LearnerArgs
from learner.config.presets import PRESETS
from learner.config.torchrun import Place
from learner.run_claim import RunClaim
time.strftime = lambda *_: "20260101-000000"
args = LearnerArgs(config=PRESETS["cartpole-vtrace"].config)
claim = RunClaim("cartpole-vtrace", args, Place())
claim.keep()
print(claim.run_dir.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes to an empty directory, since runs/ is made in the current one."""
    monkeypatch.chdir(tmp_path)


def claim(path: str | None = None, *, resume: bool = False, place: Place | None = None) -> RunClaim:
    """Returns the claim of a learner that is given --run-dir."""
    run_dir = None if path is None else Path(path)
    args = LearnerArgs(config=CONFIG, run_dir=run_dir, resume=resume)
    return RunClaim(PRESET, args, place or Place())


def start_in(claimed: RunClaim) -> None:
    """Writes what a learner writes before it serves."""
    run_dir = claimed.run_dir
    run_dir.config.write_text("")
    run_dir.metrics.write_text('{"env_steps": 0}\n')
    (run_dir.path / "events.out.tfevents.1").write_bytes(b"")


def files() -> set[str]:
    """Returns all that is below the current directory."""
    return {str(path) for path in Path().rglob("*")}


def test_new_directory_is_named_after_the_preset_and_the_time() -> None:
    """Characters that a path should not hold are replaced."""
    claimed = claim()
    path = claimed.run_dir.path
    assert path.parent == Path("runs") and path.is_dir()
    prefix, day, second = path.name.rsplit("-", 2)
    assert prefix == "my_presets-SLOW"
    assert (len(day), len(second)) == (8, 6)
    claimed.close()


def test_runs_of_the_same_second_have_directories_of_their_own() -> None:
    """Processes of a sweep, all at once."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        )
        for _ in range(4)
    ]
    # None of them ends before all have a directory.
    told = {process.stdout.readline().strip() for process in processes if process.stdout}
    for process in processes:
        process.communicate("")
    stem = "runs/cartpole-vtrace-20260101-000000"
    assert told == {stem, f"{stem}-2", f"{stem}-3", f"{stem}-4"}


def test_directory_of_a_run_is_refused_unless_it_is_to_be_resumed() -> None:
    """It is found out by the one who holds the lock, and stays as it is."""
    Path("old").mkdir()
    Path("old/metrics.jsonl").write_text('{"env_steps": 5}\n')
    before = files()
    with pytest.raises(ConfigError, match="^run_dir: expected a new directory, or --resume, got"):
        claim("old")
    assert files() == before
    claim("old", resume=True).close()
    assert files() == before


@pytest.mark.parametrize("resume", [False, True])
def test_directory_in_use_is_refused_and_stays_as_it_is(resume: bool) -> None:
    """Also if the learner there has only begun to start."""
    first = claim("run")
    start_in(first)
    before = files()
    with pytest.raises(RunInUseError, match=f"used by process {os.getpid()} on "):
        claim("run", resume=resume)
    assert files() == before
    first.close()


@pytest.mark.parametrize("path", [None, "a/b/run"])
def test_start_that_fails_leaves_nothing(path: str | None) -> None:
    """Neither the directory nor those above it that it made."""
    claimed = claim(path)
    start_in(claimed)
    claimed.close()
    assert files() == set()


def test_start_that_fails_leaves_what_was_there_before() -> None:
    """A directory that the user has made, the user's files, and those of an earlier start."""
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("")
    Path("mine/metrics.jsonl").write_text("")
    before = files()
    claimed = claim("mine")
    start_in(claimed)
    claimed.close()
    assert files() == before


def test_resume_that_fails_leaves_the_run() -> None:
    """Its config and its reports are not those of the start."""
    claimed = claim("run")
    start_in(claimed)
    claimed.keep()
    claimed.close()
    before = files()
    claimed = claim("run", resume=True)
    (claimed.run_dir.path / "events.out.tfevents.2").write_bytes(b"")
    claimed.close()
    assert files() == before


def test_files_that_others_put_there_during_a_start_stay() -> None:
    """An observer may have opened a file in its directory."""
    claimed = claim("run")
    start_in(claimed)
    Path("run/steps.jsonl").write_text("")
    claimed.close()
    assert files() == {"run", "run/steps.jsonl"}


def test_run_that_has_started_keeps_its_files_and_frees_its_directory() -> None:
    """Also if it fails later: its logs tell why."""
    claimed = claim("run")
    start_in(claimed)
    claimed.keep()
    claimed.close()
    assert "run/config.yaml" in files()
    claim("run").close()  # it has no results, so that a corrected command may use it


def test_start_waits_for_no_start_that_fails_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory that vanishes before it is locked is made again."""
    Path("run").mkdir()
    attempts = itertools.count()

    def lock(path: Path, **settings: object) -> RunLock:
        if next(attempts) == 0:
            path.parent.rmdir()
        return RunLock(path)

    monkeypatch.setattr("learner.run_claim.RunLock", lock)
    claimed = claim("run")
    assert claimed.run_dir.lock.exists()
    claimed.close()


def test_first_of_several_learners_locks_for_all() -> None:
    """The others use its directory; they write no files of a run there, and remove none."""
    second = claim("run", place=Place(1, 2, 1))
    first = claim("run", resume=True, place=Place(0, 2, 0))
    start_in(first)
    with pytest.raises(RunInUseError, match="used by process"):
        claim("run", resume=True, place=Place(0, 2, 0))
    second.close()
    assert "run/config.yaml" in files()
    first.close()


@pytest.mark.parametrize("path", ["file", "file/run"])
def test_run_directory_that_cannot_be_made_is_refused(path: str) -> None:
    """A file is in its place, or above it."""
    Path("file").write_text("precious")
    with pytest.raises(ConfigError) as caught:
        claim(path)
    caught.match("^run_dir: expected a directory that can be written, got .*: Not a directory$")
    assert files() == {"file"}


def test_run_directory_below_a_deleted_directory_is_refused(tmp_path: Path) -> None:
    """The shell still stands in it."""
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigError, match="expected a directory that can be written, got "):
        claim("run")


_FULL = "expected a directory that can be written, got run: No space left on device"


def test_full_disk_is_named_and_leaves_no_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of the holder is the first thing that is written."""

    def pwrite(*_: object) -> int:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(ConfigError, match=_FULL):
        claim("run")


def test_learner_that_lost_its_directory_says_to_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its machine was away for so long that another learner took over."""
    claimed = claim("run")
    assert claimed.lost is None
    other = this_process()._replace(host="far", pid=7)
    lock = claimed._lock
    assert lock is not None
    monkeypatch.setattr(lock, "lost_to", other)
    assert str(claimed.lost).startswith(
        "run_dir run: expected to be used by this learner until its end, got process 7 on far since"
    )
    claimed.close()


def test_directory_is_found_by_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resume that fails does not make an old run the newest one."""
    claimed = claim("run")
    start_in(claimed)
    claimed.keep()
    claimed.close()
    os.utime("run", (1.0, 1.0))
    claim("run", resume=True).close()
    assert time.time() > Path("run").stat().st_mtime == 1.0
