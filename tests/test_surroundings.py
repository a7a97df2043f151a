"""`seed train` in the folders and with the shared memory that machines really have."""

import json
import os
import shutil
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


# Run as a script, it searches the folder where it is, and not the current one: as the command
# that pip writes.
CONSOLE_SCRIPT = """
import sys
from seed.cli import main

if __name__ == "__main__":
    sys.exit(main())
"""

# Installs packages as `pip install --editable` does: by a finder behind that of `sys.path`.
LINKS = """
import importlib.machinery, importlib.util, sys

class Links:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name in {"seed", "actors", "learner", "seed_bench"}:
            folder = f"ROOT/{name}"
            places = [folder]
            return importlib.util.spec_from_file_location(
                name, f"{folder}/__init__.py", submodule_search_locations=places
            )

place = sys.meta_path.index(importlib.machinery.PathFinder) + 1
sys.meta_path.insert(place, Links)
"""

# Names of modules of ours and of Python's, some of which Python imports at its very start.
HOSTILE = (
    *("seed", "actors", "learner", "seed_bench", "queue", "types", "random", "signal", "socket"),
    *("selectors", "struct", "subprocess", "tempfile", "logging", "numpy", "torch", "grpc"),
    *("gymnasium", "yaml", "rich", "platform", "tests/__init__"),
)

# Python imports these before it looks for the module of `python -m`.
HOSTILE_AT_START = ("types",)


class Folder:
    """A user's folder, in which files of many names stand, and the `seed` command."""

    def __init__(self, directory: Path, *, linked: bool) -> None:
        self.path = directory / "work"
        site = directory / "site"
        site.mkdir()
        (self.path / "tests").mkdir(parents=True)
        for name in HOSTILE:
            (self.path / f"{name}.py").write_text(f"raise SystemExit('{name} of the folder')")
        shutil.copy(ROOT / "tests" / "support" / "rough_envs.py", self.path / "my_env.py")
        for name in ("gru_core", "weight_decay"):
            shutil.copy(ROOT / "tests" / "packages" / f"{name}.py", self.path)
        self._script = directory / "seed"
        self._script.write_text(CONSOLE_SCRIPT)
        if linked:
            (site / "sitecustomize.py").write_text(LINKS.replace("ROOT", str(ROOT)))
        self._environment = {**os.environ, "PYTHONPATH": str(site if linked else ROOT)}

    def start(self, *words: object) -> subprocess.Popen[str]:
        """Starts `python <words>` in the folder."""
        return subprocess.Popen(
            [sys.executable, *map(str, words)],
            cwd=self.path,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def seed(self, *args: object) -> subprocess.Popen[str]:
        """Starts `seed <args>` in the folder."""
        return self.start(self._script, *args)


def output_of(process: subprocess.Popen[str]) -> str:
    """Returns what a process prints on stdout; a failure fails the test."""
    stdout, stderr = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, stderr
    return stdout


MINE = ("--env-id", "my_env:rough/Calm-v0", "--agent", "weight_decay:DecayingVTrace")


def test_processes_find_the_folders_modules_and_no_others_names(tmp_path: Path) -> None:
    """The learner, its trainer, an ingress process, an actor and its workers; then eval.

    SEED is installed as a link to a clone.
    """
    folder = Folder(tmp_path, linked=True)
    flags = ("--train-in", "process", "--ingress-processes", 1, "--env-workers", 2)
    output_of(folder.seed("train", "cartpole-vtrace", *MINE, *SHORT, *flags))
    returns = json.loads(output_of(folder.seed("eval", "run", "--episodes", 2, "--json")))
    assert returns["eval_return_mean"] == 5


def test_modules_are_found_in_two_terminals(tmp_path: Path) -> None:
    """By the commands, and by `python -m` where no file of that name is in the way."""
    folder = Folder(tmp_path, linked=False)
    for module in ("actors", "learner", "seed_bench", *HOSTILE_AT_START):
        (folder.path / f"{module}.py").unlink()
    listen = ("--listen", "unix:socket")
    learner = folder.start("-m", "learner", "cartpole-vtrace", *MINE, *SHORT, *listen)
    actors = [
        folder.start("-m", "actors", "--learner", "unix:socket", "--max-backoff-s", 0.5),
        folder.seed("actor", "--learner", "unix:socket", "--max-backoff-s", 0.5),
    ]
    output_of(learner)
    for actor in actors:
        actor.terminate()
        assert "connected to run run" in actor.communicate(timeout=TIMEOUT_S)[1]
