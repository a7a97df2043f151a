"""The `seed` command: what it prints where, its exit codes, and that help is quick."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import pytest

from seed import cli, search_path
from seed.errors import ConfigError, SeedError

ROOT = Path(__file__).parents[2]


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Help has a line about each command and exits 0."""
    assert cli.main(["--help"]) == 0
    printed = capsys.readouterr().out
    for name, (text, _) in cli.COMMANDS.items():
        assert f"  {name} " in printed
        assert text in printed


def test_no_command_says_what_to_do_next(capsys: pytest.CaptureFixture[str]) -> None:
    """Few lines, in the order of use; a script without a command must fail."""
    assert cli.main([]) == 2
    printed = capsys.readouterr().out
    assert printed.startswith("usage: seed COMMAND")
    steps = ["seed train  ", "seed train catch-vtrace", "seed eval RUN", "seed --help"]
    assert sorted(steps, key=printed.index) == steps
    assert len(printed.splitlines()) <= 7


def test_unknown_command_is_refused_with_those_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The list goes to stderr, and the exit code is 2."""
    assert cli.main(["trian"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("seed: expected one of train, ")
    assert captured.err.endswith("got 'trian'; did you mean `seed train`?\n")


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["evaluate", "x"], "; did you mean `seed eval`?"),
        (["leaner"], "; did you mean `seed learner`?"),
        (["l"], "; did you mean `seed learner` or `seed load`?"),
        (["catch", "--num-actors", "3"], "; did you mean `seed train catch --num-actors 3`?"),
        (["--resume"], ", got '--resume'"),
        ([""], ", got ''"),
    ],
)
def test_command_that_was_meant_is_suggested(
    argv: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is run that was not named clearly."""
    assert cli.main(argv) == 2
    assert capsys.readouterr().err.endswith(f"{hint}\n")


@pytest.mark.parametrize("word", ["train", "tr", "TRAIN", "Train"])
def test_beginning_of_a_command_is_enough(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Capitals do not matter."""
    monkeypatch.setitem(cli.COMMANDS, "train", ("", lambda argv: len(argv)))
    assert cli.main([word, "a", "b", "c"]) == 3


@pytest.mark.parametrize("word", ["--version", "-V", "version"])
def test_version_names_package_and_commit(
    word: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report of a bug needs both."""
    monkeypatch.setenv("SEED_GIT_COMMIT", "0123abc")
    assert cli.main([word]) == 0
    assert capsys.readouterr().out == f"seed-rl {metadata.version('seed-rl')} (0123abc)\n"


def test_help_of_a_command_can_be_asked_for_in_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`seed help train` is `seed train --help`."""
    given = []
    monkeypatch.setitem(cli.COMMANDS, "train", ("", lambda argv: given.append(argv) or 0))
    assert cli.main(["help", "train", "x"]) == 0
    assert given == [["x", "--help"]]
    assert cli.main(["help"]) == 0
    assert "usage: seed COMMAND" in capsys.readouterr().out


def test_promised_commands_exist() -> None:
    """The README uses these names."""
    assert cli.COMMANDS.keys() >= {"train", "learner", "actor", "eval"}


def test_error_of_the_user_is_one_line_without_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line says which command failed and why. A setting that cannot work has exit code 2."""

    def refuse(argv: Sequence[str]) -> int:
        raise ConfigError("listen: expected b, got c") if argv else SeedError("no luck")

    monkeypatch.setitem(cli.COMMANDS, "train", ("", refuse))
    assert cli.main(["train"]) == 1
    assert capsys.readouterr().err == "seed train: no luck\n"
    assert cli.main(["train", "x"]) == 2
    assert capsys.readouterr().err == "seed train: listen: expected b, got c\n"


def test_bug_shows_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line catches only errors of the user."""

    def fail(argv: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setitem(cli.COMMANDS, "train", ("", fail))
    with pytest.raises(ZeroDivisionError):
        cli.main(["train"])


def test_exit_code_is_the_commands_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command gets the arguments behind its name."""
    given = []

    def run(argv: object) -> int:
        given.append(argv)
        return 7

    monkeypatch.setitem(cli.COMMANDS, "train", ("", run))
    assert cli.main(["train", "x", "--y"]) == 7
    assert given == [["x", "--y"]]


def test_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message says what to do, in one line."""
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "torch" else find_spec(name)
    )
    monkeypatch.chdir(tmp_path)
    assert cli.main(["learner", "catch-vtrace"]) == 2
    assert "seed learner: torch is not installed; run: " in capsys.readouterr().err


# What a user types first; no such command may load torch, which takes seconds.
QUICK = """
import sys
from seed import cli, search_path
for argv, code in {cases}:
    try:
        got = cli.main(argv)
    except SystemExit as exit:
        got = exit.code
    assert got == code, (argv, got)
    assert "torch" not in sys.modules, argv
"""


def test_help_and_refusals_do_not_load_torch() -> None:
    """A fresh interpreter has not loaded torch afterwards."""
    cases = [
        (["--help"], 0),
        (["learner", "--help"], 0),
        (["train", "--help"], 0),
        (["eval", "--help"], 0),
        (["actor", "--help"], 0),
        (["learner", "cartpole-vtrace", "--help"], 0),
        (["train", "cartpole-vtrace", "--agent", "r2d2", "--help"], 0),
        (["learner", "no-such-preset"], 2),
        (["train", "no-such-preset"], 2),
        (["train", "--resume"], 2),
        (["eval", "no-such-run"], 2),
        (["trian"], 2),
        (["catch"], 2),
        (["--version"], 0),
        ([], 2),
        (["bench", "--help"], 0),
        (["load", "--help"], 0),
        (["learner", "cartpole-vtrace", "--learning-rate", "-1"], 2),
        (["learner"], 2),
        (["eval"], 2),
    ]
    done = subprocess.run(
        [sys.executable, "-c", QUICK.format(cases=cases)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "seed learner: PRESET: expected one of" in done.stderr


@pytest.mark.parametrize("argv", [["--version"], ["train", "catch-vtrace", "--help"]])
def test_reader_that_leaves_ends_the_command_in_silence(argv: list[str]) -> None:
    """`seed train catch-vtrace --help | head`: neither a traceback nor a warning."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "seed.cli", *argv]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, cwd=ROOT, timeout=60)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_module_runs_as_a_command() -> None:
    """`python -m seed.cli` does the same as `seed`."""
    done = subprocess.run(
        [sys.executable, "-m", "seed.cli", "no-such-command"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("seed: expected one of train")


def test_current_folder_is_searched_for_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is added once, behind all others, for any number of calls."""
    monkeypatch.setattr(search_path, "_last", None)
    monkeypatch.setitem(cli.COMMANDS, "train", ("", lambda argv: 0))
    monkeypatch.chdir(tmp_path)
    others = [path for path in sys.path if path]
    monkeypatch.setattr(sys, "path", list(others))
    for _ in range(2):
        cli.main(["train"])
    assert sys.path == [*others, str(tmp_path)]


def test_current_folder_that_is_searched_already_is_not_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An empty name in the path stands for it."""
    monkeypatch.setitem(cli.COMMANDS, "train", ("", lambda argv: 0))
    monkeypatch.setattr(sys, "path", ["somewhere", ""])
    cli.main(["train"])
    assert sys.path == ["somewhere", ""]
