"""Flags of a command: help, refusals in one line, and flags that are given twice."""

import dataclasses

import pytest

from seed.command_line import parse
from seed.errors import require
from seed.help_page import Page

PAGE = Page(usage="seed do [flags]")
LONG = "a sentence that is so long that a box of eighty columns would break it into two lines"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner:
    """A dataclass within the other."""

    size: int = 1
    """First line of a text,
    `second` line of it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Args:
    """Flags of a command."""

    inner: Inner = Inner()
    listen: tuple[str, ...] = ("a",)
    """Addresses."""
    learner: str = "a"
    rng_seed: int = 0

    def __post_init__(self) -> None:
        require(self.rng_seed >= 0, "rng_seed", LONG, self.rng_seed)


def run(*argv: str) -> Args:
    """Parses a command line."""
    return parse(Args, argv, prog="seed do", page=PAGE, once=("learner",))


def refusal(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """Returns what a command line that is refused prints to stderr."""
    with pytest.raises(SystemExit) as caught:
        run(*argv)
    captured = capsys.readouterr()
    assert (caught.value.code, captured.out) == (2, "")
    return captured.err


def test_flags_of_inner_dataclasses_have_no_prefix() -> None:
    """Underscores are taken for dashes."""
    assert run("--size", "3", "--rng_seed", "4") == Args(inner=Inner(size=3), rng_seed=4)


def test_values_that_are_not_given_are_those_of_the_default() -> None:
    """A preset is such a default."""
    default = Args(inner=Inner(size=7))
    args = parse(Args, ["--rng-seed", "5"], prog="seed do", page=PAGE, default=default)
    assert args == Args(inner=Inner(size=7), rng_seed=5)


@pytest.mark.parametrize("argv", [["--help"], ["-h"], ["--rng-seed", "-1", "--help"]])
def test_help_is_the_page(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """It helps beside flags that cannot work, too."""
    with pytest.raises(SystemExit) as caught:
        run(*argv)
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("usage: seed do [flags]\n")


def test_refusal_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """It can be searched for and copied, however long it is."""
    printed = refusal(capsys, "--rng-seed", "-1")
    assert printed == f"seed do: rng_seed: expected {LONG}, got -1\n"


def test_unknown_flag_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    """The text of the flag is not broken where the source breaks it."""
    printed = refusal(capsys, "--sizee", "3")
    assert "--sizee" in printed and "--size INT" in printed
    assert "First line of a text, `second` line of it." in printed


def test_last_value_of_a_flag_counts() -> None:
    """A script's own flags can be followed by a user's: make pong ARGS="--rng-seed 2"."""
    assert run("--rng-seed", "1", "--rng-seed=2", "--size", "1").rng_seed == 2


@pytest.mark.parametrize(
    "argv",
    [
        ("--listen", "b", "--listen", "c"),
        ("--listen=b", "--rng-seed", "1", "--listen", "c", "d"),
    ],
)
def test_flag_with_a_list_is_refused_the_second_time(
    argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """The first values would be lost."""
    wanted = "seed do: listen: expected all values behind one --listen, got --listen twice\n"
    assert refusal(capsys, *argv) == wanted
    assert run("--listen", "b", "c").listen == ("b", "c")


def test_list_in_one_word_is_refused_the_second_time(capsys: pytest.CaptureFixture[str]) -> None:
    """An actor's --learner is one."""
    printed = refusal(capsys, "--learner", "b", "--learner", "b")
    assert "learner: expected all values behind one --learner" in printed
