"""Reads a command's flags into its dataclass, or prints its help page and exits.

tyro parses. This module adds what is the same for all commands: the help page, refusals in one
line, and what a flag means that is given twice.
"""

import dataclasses
import functools
import sys
import typing
from collections.abc import Sequence
from typing import Any, TypeVar

import tyro
from tyro.constructors import (
    MISSING_NONPROP,
    ConstructorRegistry,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from seed.errors import ConfigError, expected
from seed.flags import groups_of, texts_of
from seed.help_page import Page, render

HELP_FLAGS = frozenset(("-h", "--help"))

Args = TypeVar("Args")


def parse(
    cls: type[Args],
    argv: Sequence[str],
    *,
    prog: str,
    page: Page,
    default: Args | None = None,
    once: Sequence[str] = (),
) -> Args:
    """Returns the dataclass `cls` with the flags of `argv`.

    Of a flag that is given twice the last value counts, so that a script's own flags can be
    followed by a user's. A flag that takes a list is refused the second time: the values of the
    first would be lost.

    Args:
      cls: the dataclass; the names of inner fields are flags without a prefix.
      argv: what follows the command.
      prog: the command, as messages name it.
      page: what --help prints beside the flags.
      default: the values of flags that are not given; None: those of the class.
      once: further fields whose flag is refused the second time, as its one value is a list.

    Raises:
      SystemExit: with 0 after --help, with 2 after a message about flags that cannot work.
    """
    if HELP_FLAGS & set(argv):
        print(render(page, cls, default))
        raise SystemExit(0)
    try:
        _refuse_second_list(cls, default, argv, once)
        return tyro.cli(
            cls,
            prog=prog,
            args=list(argv),
            default=MISSING_NONPROP if default is None else default,
            config=(tyro.conf.OmitArgPrefixes, tyro.conf.AvoidSubcommands),
            registry=_REGISTRY,
        )
    except _Refusal as refusal:
        print(f"{prog}: {refusal}", file=sys.stderr)
    except ConfigError as error:
        print(f"{prog}: {error}", file=sys.stderr)
    raise SystemExit(2)


def _refuse_second_list(cls: type, default: Any, argv: Sequence[str], once: Sequence[str]) -> None:
    given = [word.partition("=")[0].replace("_", "-") for word in argv]
    for group in groups_of(cls, default):
        for flag in group.flags:
            is_list = flag.takes_list or flag.field in once
            if is_list and given.count(flag.name) > 1:
                wanted = f"all values behind one {flag.name}"
                raise ConfigError(expected(flag.field, wanted, f"{flag.name} twice"))


class _Refusal(Exception):
    """A ConfigError of a dataclass, on its way through tyro.

    tyro would break the message of a ValueError into the lines of a box.
    """


_REGISTRY = ConstructorRegistry()


@_REGISTRY.struct_rule
def _dataclass_rule(info: StructTypeInfo) -> StructConstructorSpec | None:
    """Tells tyro about a dataclass: texts without the source's line breaks, and plain refusals."""
    cls = info.type
    if not dataclasses.is_dataclass(cls):
        return None
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = tuple(
        StructFieldSpec(
            name=field.name,
            type=hints[field.name],
            default=_default_of(field, info.default),
            helptext=functools.partial(_text_of, cls, field.name),
        )
        for field in dataclasses.fields(cls)
    )
    return StructConstructorSpec(functools.partial(_construct, cls), fields)


def _default_of(field: dataclasses.Field[Any], instance: object) -> object:
    value = getattr(instance, field.name, field.default)
    return MISSING_NONPROP if value is dataclasses.MISSING else value


def _text_of(cls: type, field: str) -> str | None:
    return texts_of(cls).get(field)


def _construct(cls: type, **values: object) -> object:
    try:
        return cls(**values)
    except ConfigError as error:
        raise _Refusal(str(error)) from error
