"""Help pages: what stands first, what follows, and how wide they are."""

import dataclasses

import pytest

from seed.help_page import Page, render


@dataclasses.dataclass(frozen=True, kw_only=True)
class Net:
    """The network."""

    hidden_size: int = 64
    """Units of the layer. A larger layer learns more and takes longer, for each of the images that
    it reads, in training as well as in acting."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Args:
    """Does it."""

    net: Net = Net()
    device: str = "cpu"
    """Device to use."""
    token_file: str | None = None
    """Secret."""


PAGE = Page(
    usage="seed do [flags]",
    examples=("seed do --device cuda",),
    most_used=("hidden_size", "device", "no_such_field"),
    sections={"access": ("token_file",)},
)


def test_page_begins_with_what_people_need() -> None:
    """Usage, a sentence, an example, and the most used flags with one sentence each."""
    page = render(PAGE, Args)
    assert page.startswith(
        "usage: seed do [flags]\n\nDoes it.\n\nexamples:\n  seed do --device cuda\n\nmost used"
    )
    summary = page.split("\n\n")[3].splitlines()[1:]
    assert summary == [
        "  --hidden-size INT             Units of the layer (64)",
        "  --device TEXT                 Device to use (cpu)",
    ]


def test_sections_come_in_the_order_of_use() -> None:
    """First the command's own, then those of inner dataclasses, then those that the page names."""
    lines = render(PAGE, Args).splitlines()
    assert [line for line in lines if line.isupper()] == ["FLAGS", "NET", "ACCESS"]
    access = lines.index("ACCESS")
    assert lines[access + 1 :] == ["  --token-file TEXT", "      Secret."]


@pytest.mark.parametrize(("terminal", "widest"), [("200", 80), ("60", 60)])
def test_page_is_no_wider_than_the_terminal(
    terminal: str, widest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is never wider than 80 columns, and has no colours."""
    monkeypatch.setenv("COLUMNS", terminal)
    page = render(PAGE, Args)
    assert widest - 10 < max(map(len, page.splitlines())) <= widest
    assert page.isascii() and "\x1b" not in page
