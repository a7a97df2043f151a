"""The lock of a run directory: who is refused, and whose lock is taken over."""

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from learner import run_lock
from learner.run_lock import Holder, RunLock, Timing, this_process
from seed.errors import RunInUseError

# Another machine's holder is taken for dead after half a second.
QUICK = Timing(heartbeat_s=0.05, lease_s=0.5)
PATIENT = Timing(heartbeat_s=0.05, lease_s=1_000.0)

HOLD = """
import sys
from pathlib import Path
from learner.run_lock import RunLock
from seed.errors import RunInUseError
try:
    lock = RunLock(Path(sys.argv[1]))
except RunInUseError as error:
    print(error, flush=True)
else:
    print("held", flush=True)
    sys.stdin.read()
"""

Start = Callable[[], subprocess.Popen[str]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The lock file of a run directory."""
    return tmp_path / "learner.lock"


@pytest.fixture
def start(path: Path) -> Iterator[Start]:
    """Starts processes that hold the lock until their standard input is closed."""
    started: list[subprocess.Popen[str]] = []

    def start_one() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOLD, str(path)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start_one
    for process in started:
        process.kill()
        process.wait()


def first_line(process: subprocess.Popen[str]) -> str:
    """Returns what a process says of its attempt."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def write(path: Path, holder: Holder, *, age_s: float = 0.0) -> None:
    """Writes a lock file that a holder has touched `age_s` seconds ago."""
    path.write_text(json.dumps(holder._asdict()))
    touched_s = time.time() - age_s
    os.utime(path, (touched_s, touched_s))


def far_holder() -> Holder:
    """Returns a learner on another machine, with this process's host name and id."""
    return this_process()._replace(machine="another", since="2026-01-01 00:00:00 UTC")


def without_flock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands for a file system that has no `flock`, such as Lustre without its mount option."""
    monkeypatch.setattr(run_lock, "_try_flock", lambda descriptor: None)
    monkeypatch.setattr(run_lock, "_SETTLE_S", 0.0)


def test_second_process_is_refused_and_told_who_holds_the_lock(path: Path, start: Start) -> None:
    """Host, process id and time are those of the first; once that has ended, the lock is free."""
    holder = start()
    assert first_line(holder) == "held"
    with pytest.raises(RunInUseError) as caught:
        RunLock(path)
    host = os.uname().nodename
    since = r" since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC$"
    caught.match(
        f"^run_dir: expected a directory that no other learner uses, got {path.parent}, "
        f"used by process {holder.pid} on {host}{since}"
    )
    holder.communicate("")
    RunLock(path).release()


def test_of_processes_at_the_same_moment_one_gets_the_lock(start: Start) -> None:
    """Each of the others is told the name of the one."""
    processes = [start() for _ in range(4)]
    lines = {process.pid: first_line(process) for process in processes}
    (winner,) = (pid for pid, line in lines.items() if line == "held")
    others = [line for line in lines.values() if line != "held"]
    assert all(f"used by process {winner} on " in line for line in others), others


def test_killed_holder_leaves_nothing_to_wait_for(path: Path, start: Start) -> None:
    """As after kill -9, or the end of a container; the record in the file is still there."""
    holder = start()
    assert first_line(holder) == "held"
    holder.kill()
    holder.wait()
    assert path.stat().st_size > 0
    RunLock(path, timing=PATIENT).release()


def test_holder_that_is_stopped_for_a_while_keeps_its_lock(path: Path, start: Start) -> None:
    """On its own machine no time is too long: a laptop sleeps for days."""
    holder = start()
    assert first_line(holder) == "held"
    holder.send_signal(signal.SIGSTOP)
    write(path, run_lock._read_holder(path) or far_holder(), age_s=1e6)
    with pytest.raises(RunInUseError, match=f"used by process {holder.pid} on "):
        RunLock(path)


def test_restarted_container_may_have_the_same_host_name_and_process_id(path: Path) -> None:
    """The record names this very process, but nobody holds the file: the holder is dead."""
    write(path, this_process())
    RunLock(path, timing=PATIENT).release()


def test_restarted_container_may_have_another_host_name_and_process_ids(path: Path) -> None:
    """Process 1 of another container of this machine: there is no need to wait."""
    holder = this_process()._replace(host="0123456789ab", pid=1, pid_namespace="pid:[1]")
    write(path, holder)
    RunLock(path, timing=PATIENT).release()


def test_holder_on_another_machine_that_touches_the_file_is_alive(path: Path) -> None:
    """Although this process gets the `flock`, which some shared file systems keep to a machine."""
    write(path, far_holder())
    looks = iter(range(1_000))

    def touch_at_the_third_look() -> bool:
        if next(looks) == 2:
            os.utime(path)
        return False

    with pytest.raises(RunInUseError, match="used by process .* since 2026-01-01 00:00:00 UTC"):
        RunLock(path, timing=PATIENT, is_stopped=touch_at_the_third_look)
    assert run_lock._read_holder(path) == far_holder()


def test_holder_on_another_machine_that_died_lately_is_waited_for(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its file stays untouched: a job that was requeued on another node goes on. It says why."""
    write(path, far_holder())
    with caplog.at_level(logging.WARNING):
        lock = RunLock(path, timing=QUICK)
    assert run_lock._read_holder(path) == lock.holder
    lock.release()
    (message,) = caplog.messages
    assert message.startswith(f"waiting up to 0.5 s, because {path.parent} may still be used by ")


@pytest.mark.parametrize("clock_is_off_by_s", [0.0, -1e6, 1e6])
def test_holder_on_another_machine_that_died_long_ago_is_not_waited_for(
    path: Path, monkeypatch: pytest.MonkeyPatch, clock_is_off_by_s: float
) -> None:
    """Both times are the file system's, so that this machine's clock does not matter."""
    write(path, far_holder(), age_s=PATIENT.lease_s + 10.0)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + clock_is_off_by_s)
    RunLock(path, timing=PATIENT).release()


def test_wait_ends_when_the_learner_is_stopped(path: Path) -> None:
    """Ctrl-C ends it with the holder's name."""
    write(path, far_holder())
    with pytest.raises(RunInUseError, match="used by process .* since 2026-01-01"):
        RunLock(path, timing=PATIENT, is_stopped=lambda: True)


def test_lock_of_a_dead_machine_that_a_file_server_keeps_is_replaced(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS version 3 keeps it until the machine boots again, if it ever does."""
    write(path, far_holder(), age_s=PATIENT.lease_s + 10.0)
    monkeypatch.setattr(run_lock, "_SETTLE_S", 0.0)
    with path.open() as kept_by_server:
        assert run_lock._try_flock(kept_by_server.fileno())
        lock = RunLock(path, timing=PATIENT)
        with pytest.raises(RunInUseError, match=f"used by process {os.getpid()} on "):
            RunLock(path, timing=PATIENT)
        lock.release()
    assert [*path.parent.iterdir()] == [path]


def test_without_flock_a_running_holder_is_alive(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for by process id and start."""
    without_flock(monkeypatch)
    lock = RunLock(path)
    with pytest.raises(RunInUseError, match=f"used by process {os.getpid()} on "):
        RunLock(path)
    lock.release()
    RunLock(path).release()


def test_without_flock_a_process_id_that_another_process_got_is_no_holder(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or one that nobody has; neither is waited for."""
    without_flock(monkeypatch)
    for dead in (this_process()._replace(started="7"), this_process()._replace(pid=2**22 + 1)):
        write(path, dead)
        RunLock(path, timing=PATIENT).release()


def test_without_flock_another_containers_holder_is_watched(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process id means nothing here."""
    without_flock(monkeypatch)
    write(path, this_process()._replace(pid_namespace="pid:[1]", pid=1))
    with pytest.raises(RunInUseError, match="used by process 1 on "):
        RunLock(path, timing=PATIENT, is_stopped=lambda: True)
    RunLock(path, timing=QUICK).release()


def test_of_newcomers_without_flock_the_last_one_stays(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others see its name when they look again."""
    without_flock(monkeypatch)
    monkeypatch.setattr(time, "sleep", lambda seconds: write(path, far_holder()))
    with pytest.raises(RunInUseError, match="since 2026-01-01 00:00:00 UTC"):
        RunLock(path)
    assert run_lock._read_holder(path) == far_holder()


def test_holder_keeps_its_file_fresh(path: Path) -> None:
    """Learners on other machines see that it lives."""
    lock = RunLock(path, timing=QUICK)
    os.utime(path, (0.0, 0.0))
    deadline_s = time.monotonic() + 20.0
    while not path.stat().st_mtime and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert time.time() - path.stat().st_mtime < 20.0
    lock.release()


def test_holder_that_was_taken_for_dead_finds_out(path: Path) -> None:
    """It leaves the file to the other."""
    lock = RunLock(path, timing=QUICK)
    assert lock.lost_to is None
    write(path, far_holder())
    lock._thread.join(20.0)
    assert lock.lost_to == far_holder()
    lock.release()
    assert run_lock._read_holder(path) == far_holder()


def test_file_system_that_is_away_for_a_moment_costs_no_lock(path: Path) -> None:
    """The file is touched again as soon as it is back."""
    lock = RunLock(path, timing=QUICK)
    aside = path.with_name("aside")
    os.rename(path, aside)
    time.sleep(3 * QUICK.heartbeat_s)
    os.utime(aside, (0.0, 0.0))
    os.rename(aside, path)
    deadline_s = time.monotonic() + 20.0
    while not path.stat().st_mtime and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert path.stat().st_mtime > 0 and lock.lost_to is None
    lock.release()


def test_released_lock_leaves_an_empty_file_and_the_directorys_time(path: Path) -> None:
    """The newest run of a preset is found by the time of its directory."""
    RunLock(path).release()
    os.utime(path.parent, (1.0, 1.0))
    RunLock(path).release()
    assert path.read_bytes() == b""
    assert path.parent.stat().st_mtime == 1.0


@pytest.mark.parametrize("content", ["", "{", '{"host": "x"}', "[1]", "\0\0"])
def test_file_that_names_nobody_is_free(path: Path, content: str) -> None:
    """A full disk may cut a name off."""
    path.write_text(content)
    RunLock(path).release()


def test_holder_that_has_no_name_yet_is_waited_for(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is about to write one; if it never does, the newcomer is refused all the same."""
    path.touch()
    with path.open() as nameless:
        run_lock._try_flock(nameless.fileno())

        def name_it() -> bool:
            with contextlib.suppress(StopIteration):
                write(path, next(names))
            return False

        names = iter([this_process()])
        with pytest.raises(RunInUseError, match=f"used by process {os.getpid()} on "):
            RunLock(path, is_stopped=name_it)
        path.write_text("")
        monkeypatch.setattr(run_lock, "_NAME_S", 0.1)
        with pytest.raises(RunInUseError, match="used by another learner"):
            RunLock(path)
