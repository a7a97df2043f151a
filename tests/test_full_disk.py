"""A run whose disk fills up, or whose directory is read-only, says so and loses nothing."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from learner.checkpoint import load_checkpoint
from tests.test_train import ENDLESS, Process, _run

DISK_MIB = 8


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few MiB, for users who may mount one."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", tmp_path]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("mount is not installed")
    if done.returncode != 0:
        pytest.skip(f"may not mount a small disk: {done.stderr.strip()}")
    yield tmp_path
    subprocess.run(["umount", "--lazy", tmp_path], check=True)


def fill(disk: Path) -> Path:
    """Fills the file system, and returns the file that took the room."""
    path = disk / "filler"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    return path


def test_run_goes_on_without_room_and_saves_when_there_is_some(small_disk: Path) -> None:
    """The run is worth more than a checkpoint or a report, and the disk may be emptied."""
    run_dir = small_disk / "run"
    process = Process(
        *("train", "cartpole-vtrace", "--run-dir", run_dir, *ENDLESS),
        *("--checkpoint-every-s", 1, "--report-every-s", 0.5),
    )
    try:
        process.read_until(r"saved .*checkpoints")
        filler = fill(small_disk)
        process.read_until(r"no checkpoint this time")
        before = load_checkpoint(run_dir / "checkpoints").state["env_steps"]
        process.read_until(r"no checkpoint this time")
        filler.unlink()
        process.read_until(r"saved .*checkpoints")
        process.read_until(r"[1-9] actors")
        assert process.end(signal.SIGTERM) == 0, process.output
    finally:
        process.end(signal.SIGKILL)
    assert "No space left on device" in process.output
    assert load_checkpoint(run_dir / "checkpoints").state["env_steps"] > before
    # Reports that failed are written later, and no line is torn.
    assert (run_dir / "metrics.jsonl").read_bytes().endswith(b"}\n")


def test_run_that_ends_without_room_says_so_and_keeps_its_last_checkpoint(
    small_disk: Path,
) -> None:
    """It exits with code 1 and one line, and what was saved before is whole."""
    run_dir = small_disk / "run"
    process = Process(
        *("train", "cartpole-vtrace", "--run-dir", run_dir, *ENDLESS),
        *("--checkpoint-every-s", 1, "--report-every-s", 0.5),
    )
    try:
        process.read_until(r"saved .*checkpoints")
        fill(small_disk)
        process.read_until(r"no checkpoint this time")
        assert process.end(signal.SIGTERM) == 1, process.output
    finally:
        process.end(signal.SIGKILL)
    (reason,) = {line for line in process.output.splitlines() if line.startswith("seed train: ")}
    assert "expected room and permission to write a checkpoint" in reason
    assert load_checkpoint(run_dir / "checkpoints").state["env_steps"] > 0


def test_run_directory_that_cannot_be_written_is_refused(small_disk: Path) -> None:
    """The refusal comes before anything is started."""
    command = ["mount", "-o", "remount,ro", small_disk]
    subprocess.run(command, check=True, capture_output=True)
    done = _run("train", "cartpole-vtrace", "--run-dir", small_disk / "run")
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("seed train: run_dir: expected a directory that can be written")
    assert "Read-only file system" in done.stderr


def test_run_directory_below_a_file_is_refused(tmp_path: Path) -> None:
    """This holds for every user, root included."""
    (tmp_path / "file").write_text("")
    done = _run("train", "cartpole-vtrace", "--run-dir", tmp_path / "file" / "run")
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("seed train: run_dir: expected a directory that can be written")
