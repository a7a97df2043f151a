"""The current folder is searched last, by a command and by the processes that it starts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from seed import search_path
from seed.search_path import SpawnTarget, python_module, starting_processes

ROOT = Path(__file__).parent.parent.parent

# A program that a user's own library would run: it starts a process by multiprocessing.
_SPAWNS = """
import multiprocessing, sys
from seed.search_path import search_current_folder, spawn
search_current_folder()
import mine

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=mine.say), spawn(context, mine.say, (), name="ours")]
    if sys.argv[1:]:
        processes[0].start()
    for process in processes[not sys.argv[1:]:]:
        process.join()
        assert process.exitcode == 0
"""


def write_module(folder: Path, name: str, source: str) -> Path:
    """Writes a module that this process never imports."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(source)
    return path


def run(folder: Path, *words: str, **variables: str) -> str:
    """Returns what `python <words>` prints in `folder`."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("module", ["seed.cli", "actors", "learner"])
def test_modules_that_python_runs_pass_over_the_folder(tmp_path: Path, module: str) -> None:
    """`python -m` searches the folder first; names of Python's own and of ours stand there."""
    for name in ("queue", "random", "signal", "numpy"):
        write_module(tmp_path, f"{name}.py", "raise SystemExit('the folder')")
    run(tmp_path, "-m", module, "--help")


def test_folder_is_found_by_processes_of_a_users_library(tmp_path: Path) -> None:
    """They inherit the search path, and our own processes follow the same rule."""
    script = write_module(tmp_path / "elsewhere", "script.py", _SPAWNS)
    write_module(tmp_path, "mine.py", "import os\ndef say():\n    os.write(1, b'found ')")
    assert run(tmp_path, str(script), "both").split() == ["found"] * 2


def test_pythons_own_modules_are_found_by_our_processes(tmp_path: Path) -> None:
    """Python would search the folder first when `multiprocessing` starts it."""
    script = write_module(tmp_path / "elsewhere", "script.py", _SPAWNS)
    write_module(
        tmp_path, "mine.py", "import os\ndef say():\n    print(os.environ.get('PYTHONSAFEPATH'))"
    )
    for name in ("types", "signal", "selectors", "seed"):
        write_module(tmp_path, f"{name}.py", "raise SystemExit('the folder')")
    assert run(tmp_path, str(script)) == "None\n", "an environment's own Python is left alone"
    assert run(tmp_path, str(script), PYTHONSAFEPATH="1") == "1\n"


def test_folder_that_was_removed_is_not_searched(tmp_path: Path) -> None:
    """A shell may still stand in a folder that is gone."""
    program = "import os, sys; os.rmdir(os.getcwd())\nfrom seed.search_path import *\n"
    (tmp_path / "gone").mkdir()
    run(tmp_path / "gone", "-P", "-c", program + "search_current_folder()")


def test_clone_stays_where_it_is_in_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a clone the packages are in the folder; elsewhere `python -m` skips it."""
    monkeypatch.chdir(ROOT)
    assert python_module("actors", "--help") == [sys.executable, "-m", "actors", "--help"]
    monkeypatch.chdir("/")
    assert python_module("actors") == [sys.executable, "-P", "-m", "actors"]


def test_start_of_a_process_leaves_the_path_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside, the folder is not searched; also when the start fails."""
    monkeypatch.setattr(search_path, "_last", "/folder")
    monkeypatch.setattr(sys, "path", ["/installed", "/folder"])
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    with pytest.raises(OSError), starting_processes():
        assert sys.path == ["/installed"]
        assert os.environ["PYTHONSAFEPATH"]
        raise OSError
    assert sys.path == ["/installed", "/folder"]
    assert "PYTHONSAFEPATH" not in os.environ


def test_target_calls_its_function() -> None:
    """In the new process and in this one."""
    assert SpawnTarget(divmod)(7, 2) == (3, 1)
