"""Names on the command line -> objects of other packages.

A name is a built-in, an entry point of an installed package, or `module:Name`. Imports no torch
itself: only `load` imports the module that a name stands for. Called when flags are parsed, when
a config.yaml is read and when agents and networks are built. The callers look up the built-ins,
and check that an object is of the right type.
"""

import functools
import importlib
import textwrap
import traceback
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import NamedTuple

from seed.errors import ConfigError, expected


class Kind(NamedTuple):
    """A kind of named object: an agent, a torso, a preset."""

    field: str
    """The field that messages name."""
    group: str
    """Group of the entry points with which installed packages register theirs."""
    built_in: tuple[str, ...]
    """Names that need no import of another package."""


def installed(kind: Kind) -> dict[str, EntryPoint]:
    """Returns the entry points of `kind` by name, in the order of their names."""
    found = entry_points(group=kind.group)
    return {entry_point.name: entry_point for entry_point in sorted(found, key=lambda e: e.name)}


def check_name(kind: Kind, name: str) -> None:
    """Raises ConfigError unless `name` is a built-in, an entry point or reads module:Name.

    Imports nothing, so only `load` finds out that a module does not exist.
    """
    if name in kind.built_in or _is_target(name) or name in installed(kind):
        return
    known = ", ".join(map(repr, [*kind.built_in, *installed(kind)]))
    raise ConfigError(expected(kind.field, f"one of {known}, or module:Name", repr(name)))


def load(kind: Kind, name: str) -> object:
    """Imports and returns what `name`, an entry point or `module:Name`, stands for.

    Raises:
      ConfigError: no such name, two packages offer the name, the module cannot be imported
        (with the traceback of what it raised), or it does not define the name.
    """
    check_name(kind, name)
    module, attribute = name.split(":") if _is_target(name) else _entry_point(kind, name)
    found = _import(kind.field, module)
    try:
        return functools.reduce(getattr, attribute.split("."), found)
    except AttributeError as error:
        wanted = f"a name that {module} ({found.__file__}) defines"
        raise ConfigError(expected(kind.field, wanted, repr(attribute))) from error


def _is_target(name: str) -> bool:
    """Tells whether `name` reads module:Name; both sides may have dots."""
    module, _, attribute = name.partition(":")
    words = [*module.split("."), *attribute.split(".")]
    return all(word.isidentifier() for word in words)


def _entry_point(kind: Kind, name: str) -> tuple[str, str]:
    """Returns the module and the attribute that the entry point `name` stands for."""
    found = list(entry_points(group=kind.group, name=name))
    if len(found) > 1:
        packages = " and ".join(sorted(e.dist.name if e.dist else e.value for e in found))
        wanted = "a name that one installed package offers, or module:Name"
        raise ConfigError(expected(kind.field, wanted, f"{name!r} of {packages}"))
    return found[0].module, found[0].attr or ""


def _import(field: str, module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise _raised_at_import(field, module, error) from error
        wanted = "a module in the current folder, on PYTHONPATH or installed"
        raise ConfigError(expected(field, wanted, f"{module!r} ({error})")) from error
    # A module may raise anything while it is imported.
    except Exception as error:
        raise _raised_at_import(field, module, error) from error


def _raised_at_import(field: str, module: str, error: Exception) -> ConfigError:
    """Returns the error that shows where in the user's module `error` was raised."""
    frames = error.__traceback__
    while frames is not None and _is_of_the_import_itself(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    text = "".join(traceback.format_exception(type(error), error, frames))
    message = expected(field, "a module that can be imported", f"{module!r}, which raised")
    return ConfigError(f"{message}\n{textwrap.indent(text.rstrip(), '  ')}")


def _is_of_the_import_itself(file: str) -> bool:
    return file in (__file__, importlib.__file__) or file.startswith("<frozen importlib")
