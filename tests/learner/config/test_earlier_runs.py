"""The runs that messages name, where a run was meant that is not there."""

import os
from pathlib import Path

import pytest

from learner.config.earlier_runs import check_is_run, earlier_runs, no_run, preset_of_newest_run
from seed.errors import ConfigError


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes to an empty directory, since runs/ is looked for in the current one."""
    monkeypatch.chdir(tmp_path)


def make_run(name: str, age_s: float = 0.0) -> Path:
    """Makes a run with a checkpoint, last changed `age_s` seconds before a fixed time."""
    path = Path("runs", name)
    (path / "checkpoints/7").mkdir(parents=True)
    changed_at = 1_700_000_000 - age_s
    os.utime(path, (changed_at, changed_at))
    return path


def message(path: str) -> str:
    """Returns why `path` is refused."""
    with pytest.raises(ConfigError) as caught:
        check_is_run("RUN", Path(path))
    return str(caught.value)


def test_newest_run_comes_first() -> None:
    """A directory without checkpoints is none that could be evaluated or resumed."""
    old, new = make_run("old", 10), make_run("new")
    Path("runs/failed").mkdir()
    assert earlier_runs() == [new, old]


def test_run_and_checkpoint_are_accepted() -> None:
    """What is wrong inside them is found by those who read them."""
    run = make_run("pong")
    for path in (run, run / "checkpoints/7", run / "checkpoints"):
        check_is_run("RUN", path)


def test_missing_run_is_answered_with_the_likeliest() -> None:
    """The folder runs/ is often left out, and names are mistyped."""
    for name in ("pong", "catch-vtrace-20260101-000000"):
        make_run(name)
    start = "RUN: expected the directory of a run or of a checkpoint, got "
    end = "which does not exist; did you mean `runs/pong`?"
    assert message("pong") == f"{start}pong, {end}"
    assert message("runs/pogn") == f"{start}runs/pogn, {end}"


def test_missing_run_like_no_other_is_answered_with_the_newest() -> None:
    """At most three are named."""
    for age_s, name in enumerate("abcd"):
        make_run(name, age_s)
    assert message("zzz").endswith("; did you mean `runs/a` or `runs/b` or `runs/c`?")


def test_folder_of_runs_is_no_run() -> None:
    """The newest of its runs are named."""
    make_run("pong")
    assert message("runs").endswith("got runs, a folder of runs; did you mean `runs/pong`?")


def test_folder_without_runs_has_no_suggestion() -> None:
    """The first command of a new user."""
    assert message("x").endswith("got x, which does not exist")
    assert str(no_run("RUN", "nothing")).endswith("got nothing")


def test_newest_run_tells_its_preset() -> None:
    """A directory that the user has named tells none."""
    assert preset_of_newest_run() is None
    make_run("catch-vtrace-20260101-000000", 20)
    make_run("atari-vtrace-cpu-20260101-000000", 10)
    make_run("mine")
    assert preset_of_newest_run() == "atari-vtrace-cpu"
