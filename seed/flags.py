"""The flags that a dataclass stands for: their names, values and texts.

A field `num_envs` is the flag --num-envs, and the string below it is its text. Used by the help
pages and by the parser, which tyro is.
"""

import ast
import dataclasses
import functools
import inspect
import itertools
import textwrap
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tyro.conf import Positional

_METAVARS: dict[object, str] = {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH"}


class Flag(NamedTuple):
    """One flag, as a help page shows it."""

    field: str
    name: str
    """The flag with its dashes, or the word that stands for a positional argument."""
    value: str
    """What follows the flag, such as INT; nothing for a flag that is on or off."""
    default: str
    """Nothing if there is no default, or none worth showing."""
    text: str
    takes_list: bool = False


class Group(NamedTuple):
    """The flags of one dataclass."""

    name: str
    """The field that holds the dataclass; nothing for the one that holds all others."""
    text: str
    flags: list[Flag]


def groups_of(cls: type, default: Any = None, name: str = "") -> Iterator[Group]:
    """Yields the flags of `cls`, then those of the dataclasses in its fields, in their order.

    Args:
      cls: a dataclass.
      default: an instance with the defaults; None: those of the class.
      name: of the field that holds it.
    """
    flags, inner = [], []
    hints = typing.get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        value = getattr(default, field.name, field.default)
        if dataclasses.is_dataclass(value):
            inner.append(groups_of(type(value), value, field.name))
        else:
            flags.append(_flag(field.name, hints[field.name], value, texts_of(cls)))
    yield Group(name, one_line(cls.__doc__ or ""), flags)
    yield from itertools.chain.from_iterable(inner)


@functools.cache
def texts_of(cls: type) -> dict[str, str]:
    """Returns the string below each field, each paragraph in one line."""
    texts = {}
    for base in reversed(cls.__mro__):
        try:
            source = inspect.getsource(base)
        except (OSError, TypeError):  # a class of C, or one that was made at run time
            continue
        (definition,) = ast.parse(textwrap.dedent(source)).body
        assert isinstance(definition, ast.ClassDef)
        for field, text in itertools.pairwise(definition.body):
            match field, text:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str() as words)),
                ):
                    texts[name] = one_line(words)
    return texts


def one_line(text: str) -> str:
    """Returns `text` without the line breaks of the source; paragraphs stay apart."""
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n"))


def _flag(field: str, hint: Any, default: object, texts: dict[str, str]) -> Flag:
    name = field
    is_positional = False
    for extra in getattr(hint, "__metadata__", ()):
        is_positional |= extra is Positional
        name = getattr(extra, "name", None) or name
    dashed = name.replace("_", "-")
    value = _metavar(hint)
    shown = name.upper() if is_positional else f"--{dashed}"
    if default is True:
        shown = f"--{dashed}, --no-{dashed}"
    return Flag(field, shown, value, _shown(default), texts.get(field, ""), value.endswith(" ..."))


def _metavar(hint: Any) -> str:
    """Returns what stands for a value of the type `hint`; nothing for bool."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _metavar(arguments[0])
    if hint is bool:
        return ""
    if origin is Literal:
        return "|".join(map(str, arguments))
    if origin is tuple:
        return f"{_metavar(arguments[0])} ..."
    if origin in (types.UnionType, typing.Union):
        return "|".join(_metavar(x) for x in arguments if x is not type(None))
    return _METAVARS.get(hint, "VALUE")


def _shown(default: object) -> str:
    if default is True:
        return "on"
    if default is None or default is False or default is dataclasses.MISSING:
        return ""
    return " ".join(map(str, default)) if isinstance(default, tuple) else str(default)
