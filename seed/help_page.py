"""The help page of a command: an example, the flags that people use, then all flags.

Plain text of 80 columns or fewer, made from the dataclass of the command's flags.
"""

import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seed.flags import Flag, Group, groups_of

_MAX_COLUMNS = 80
_TEXT_INDENT = " " * 6
# Where the first sentences of the most used flags begin.
_SUMMARY_COLUMN = 32


@dataclass(frozen=True, kw_only=True)
class Page:
    """What a help page has beside the flags."""

    usage: str
    """The command with its arguments."""
    about: str = ""
    """What the command does; by default the text of its flags' dataclass."""
    examples: Sequence[str] = ()
    """Commands to copy."""
    most_used: Sequence[str] = ()
    """Fields of the flags that people use most, in the order of the page."""
    sections: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Title -> fields of the outermost dataclass that stand below it. The other fields come
    first. Sections of inner dataclasses come between those two."""


def render(page: Page, cls: type, default: Any = None) -> str:
    """Returns the page for the flags of the dataclass `cls`, whose defaults `default` has."""
    outer, *inner = groups_of(cls, default)
    flags = {flag.field: flag for group in (outer, *inner) for flag in group.flags}
    named = {name for names in page.sections.values() for name in names}
    first = [flag for flag in outer.flags if flag.field not in named]
    groups = [Group("flags", "", first), *inner]
    for title, names in page.sections.items():
        groups.append(Group(title, "", [flags[name] for name in names if name in flags]))
    lines = [f"usage: {page.usage}", ""]
    lines += _wrap(page.about or outer.text)
    if page.examples:
        lines += ["", "examples:", *(f"  {example}" for example in page.examples)]
    if page.most_used:
        lines += ["", "most used flags (defaults in brackets; all flags follow):"]
        lines += _summaries(flags[name] for name in page.most_used if name in flags)
    for group in groups:
        if group.flags:
            lines += ["", *_section(group)]
    return "\n".join(lines)


def _summaries(flags: Iterable[Flag]) -> Iterator[str]:
    """Yields a line or two for each flag: its name, the first sentence of its text, its default."""
    for flag in flags:
        summary = flag.text.partition(". ")[0].removesuffix(".")
        if flag.default:
            summary += f" ({flag.default})"
        head = f"  {flag.name} {flag.value}".rstrip()
        indent = " " * _SUMMARY_COLUMN
        lines = _wrap(summary, indent)
        if lines and len(head) < _SUMMARY_COLUMN:
            yield head.ljust(_SUMMARY_COLUMN) + lines[0][_SUMMARY_COLUMN:]
            lines = lines[1:]
        else:
            yield head
        yield from lines


def _section(group: Group) -> Iterator[str]:
    yield f"{group.name.upper().replace('_', ' ')}"
    yield from _wrap(group.text, "  ")
    for flag in group.flags:
        default = f"  [{flag.default}]" if flag.default else ""
        yield from _wrap(f"{flag.name} {flag.value}".rstrip() + default, "  ", hanging="    ")
        yield from _wrap(flag.text, _TEXT_INDENT)


def _wrap(text: str, indent: str = "", hanging: str = "") -> list[str]:
    width = min(shutil.get_terminal_size().columns, _MAX_COLUMNS)
    lines = []
    for paragraph in text.split("\n\n"):
        lines += textwrap.wrap(
            paragraph,
            max(width, len(indent) + 20),
            initial_indent=indent,
            subsequent_indent=indent + hanging,
            break_on_hyphens=False,
            break_long_words=False,
        )
    return lines
