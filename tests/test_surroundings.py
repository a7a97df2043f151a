"""`seed train` in the folders and with the shared memory that machines really have."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import TIMEOUT_S

ROOT = Path(__file__).parent.parent
SHORT = ("--total-env-steps", "300", "--run-dir", "run")


def seed(folder: Path, *args: str, before: tuple[str, ...] = (), **variables: str) -> str:
    """Runs `seed <args>` in `folder`, where nothing but the packages is; returns its output."""
    done = subprocess.run(
        [*before, sys.executable, "-m", "seed.cli", *args],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def in_small_shared_memory(size: str) -> tuple[str, ...]:
    """Returns the words before a command that give it a /dev/shm of `size` of its own."""
    mount = f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "$@"'
    words = ("unshare", "-m", "sh", "-c", mount, "sh")
    try:
        subprocess.run([*words, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this user may not mount a /dev/shm of its own")
    return words


@pytest.mark.parametrize("size", ["16k"])
def test_unrolls_and_weights_need_no_dev_shm(tmp_path: Path, size: str) -> None:
    """Docker's default of 64 MB is too small for large screens; here it holds one lock."""
    flags = ("--train-in", "process", "--hidden-sizes", "200")
    seed(tmp_path, "train", "cartpole-vtrace", *SHORT, *flags, before=in_small_shared_memory(size))
    assert list((tmp_path / "run" / "checkpoints").iterdir())


@pytest.mark.parametrize("name", ["x" * 120, "100%20", "a,b", "a #b?"])
def test_any_temporary_directory_will_do(tmp_path: Path, name: str) -> None:
    """Local actors find their learner, served by its thread or by processes."""
    (tmp_path / name).mkdir()
    flags = ("--train-in", "process" if name.startswith("x") else "thread")
    ingress = ("--ingress-processes", "1" if "%" in name else "0")
    seed(
        *(tmp_path, "train", "cartpole-vtrace", *SHORT, *flags, *ingress),
        TMPDIR=str(tmp_path / name),
    )
    assert list((tmp_path / "run" / "checkpoints").iterdir())
