"""The flags of a dataclass: names, values, defaults, and texts without the source's lines."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import tyro

from seed.flags import Flag, groups_of, one_line, texts_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner:
    """Settings of something."""

    sizes: tuple[int, ...] = (1, 2)
    """Sizes of it."""
    kind: Literal["a", "b"] = "a"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outer:
    """Settings of everything,
    in two lines."""

    inner: Inner = Inner()
    where: tyro.conf.Positional[Path]
    """A file that
    `somebody` made, or
    (in brackets) another.

    A second paragraph."""
    port: int | None = None
    is_on: bool = True
    is_off: bool = False
    algorithm: Annotated[str, tyro.conf.arg(name="agent")] = "x"


def flags() -> dict[str, Flag]:
    """Returns the flags of the test's dataclasses by field."""
    return {flag.field: flag for group in groups_of(Outer) for flag in group.flags}


def test_each_dataclass_is_a_group_with_its_text() -> None:
    """The fields of an inner dataclass come after those of the outer one."""
    groups = list(groups_of(Outer))
    assert [(group.name, group.text) for group in groups] == [
        ("", "Settings of everything, in two lines."),
        ("inner", "Settings of something."),
    ]
    assert [flag.field for flag in groups[1].flags] == ["sizes", "kind"]


def test_flag_says_what_follows_it() -> None:
    """A flag that is on can be switched off."""
    shown = {field: (flag.name, flag.value, flag.default) for field, flag in flags().items()}
    assert shown == {
        "where": ("WHERE", "PATH", ""),
        "port": ("--port", "INT", ""),
        "is_on": ("--is-on, --no-is-on", "", "on"),
        "is_off": ("--is-off", "", ""),
        "algorithm": ("--agent", "TEXT", "x"),
        "sizes": ("--sizes", "INT ...", "1 2"),
        "kind": ("--kind", "a|b", "a"),
    }
    assert [field for field, flag in flags().items() if flag.takes_list] == ["sizes"]


def test_defaults_are_those_of_the_instance() -> None:
    """A preset has values of its own."""
    groups = groups_of(Outer, Outer(where=Path("x"), inner=Inner(sizes=(3,))))
    assert [group.flags[0].default for group in groups] == ["x", "3"]


def test_text_has_no_line_breaks_of_the_source() -> None:
    """A line of the source may begin with a sign as well as with a letter."""
    first = "A file that `somebody` made, or (in brackets) another."
    assert texts_of(Outer)["where"] == f"{first}\n\nA second paragraph."
    assert "kind" not in texts_of(Inner)


def test_texts_are_inherited() -> None:
    """A class without source, made at run time, has those of its bases."""
    made = dataclasses.make_dataclass("Made", [("more", int)], bases=(Inner,), frozen=True)
    assert texts_of(made) == {"sizes": "Sizes of it."}


def test_indentation_is_no_part_of_a_text() -> None:
    """Paragraphs stay apart."""
    assert one_line("a\n    b\n\n    c") == "a b\n\nc"
