"""Config dataclasses <-> plain dicts, lists and numbers, strictly.

Used for a run's config.yaml and for the environment settings on the wire. An
unknown key or a value of the wrong type is a `ConfigError` naming the field by
its full path. Knows nothing of files.
"""

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar

import cattrs
from cattrs.gen import make_dict_structure_fn

from seed.errors import ConfigError, expected

Config = TypeVar("Config")

# Where one of several dataclasses may stand, this key tells which: "vtrace" for
# VTraceConfig. Absent, it is the first of them.
TAG = "algorithm"


def structure(plain: object, cls: type[Config], field: str = "") -> Config:
    """Returns the dataclass `cls` described by `plain`; absent fields take defaults.

    Args:
      plain: Nested dicts as read from YAML or JSON.
      cls: The dataclass to make.
      field: Name of the whole in error messages; empty where it is a file.

    Raises:
      ConfigError: one line for each field that does not fit.
    """
    try:
        return _CONVERTER.structure(plain, cls)
    except (cattrs.BaseValidationError, ConfigError) as error:
        raise ConfigError("\n".join(_describe(error, field))) from error


def unstructure(config: object) -> dict[str, Any]:
    """Returns the nested dicts of `config`, with lists in place of tuples."""
    return _CONVERTER.unstructure(config)


def _describe(error: BaseException, path: str) -> Iterator[str]:
    """Yields one sentence for each leaf of cattrs' tree of errors."""
    if isinstance(error, cattrs.BaseValidationError):
        if isinstance(error, cattrs.ClassValidationError):
            located = [(e, f".{note.name}") for e, note in error.group_exceptions()[0]]
            located += [(e, "") for e in error.group_exceptions()[1]]
        else:
            located = [(e, _index_of(e)) for e in error.exceptions]
        for child, step in located:
            yield from _describe(child, f"{path}{step}".lstrip("."))
    elif isinstance(error, cattrs.ForbiddenExtraKeysError):
        for key in sorted(map(str, error.extra_fields)):
            yield f"{path}.{key}: unknown field".lstrip(".")
    elif isinstance(error, ConfigError):
        # The sentence starts with a field's name, or with what was expected.
        yield f"{path}.{error}".lstrip(".") if str(error)[0].isalpha() else f"{path}{error}"
    else:
        yield f"{path}: {error}"


def _index_of(error: BaseException) -> str:
    notes = getattr(error, "__notes__", [])
    return next((f"[{n.index}]" for n in notes if isinstance(n, cattrs.IterableValidationNote)), "")


def _mismatch(wanted: str, value: object) -> ConfigError:
    """A refusal without a field: `_describe` puts the path before it."""
    return ConfigError(expected("", wanted, repr(value)))


def _structure_int(value: object, _: type) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _mismatch("an integer", value)
    return value


def _structure_float(value: object, _: type) -> float:
    # YAML reads the common "6e-4" as a string, so text that is a number will do.
    if not isinstance(value, bool) and isinstance(value, int | float | str):
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isnan(number):
            return number
    raise _mismatch("a number", value)


def _structure_bool(value: object, _: type) -> bool:
    if not isinstance(value, bool):
        raise _mismatch("true or false", value)
    return value


def _structure_str(value: object, _: type) -> str:
    if not isinstance(value, str):
        raise _mismatch("a string", value)
    return value


def _structure_literal(value: object, literal: Any) -> object:
    choices = typing.get_args(literal)
    if value not in choices:
        raise _mismatch(f"one of {', '.join(map(repr, choices))}", value)
    return value


def _structure_dataclass(converter: cattrs.Converter, cls: Any) -> Callable[[object, Any], object]:
    fields_hook = make_dict_structure_fn(cls, converter, _cattrs_forbid_extra_keys=True)

    def hook(value: object, _: Any) -> object:
        if not isinstance(value, dict):
            raise _mismatch("a mapping", value)
        return fields_hook(value, cls)

    return hook


def _structure_tuple(converter: cattrs.Converter, cls: Any) -> Callable[[object, Any], tuple]:
    """A tuple from a list: cattrs alone would take a string for its characters."""
    element, *_ = typing.get_args(cls)

    def hook(value: object, _: Any) -> tuple:
        if not isinstance(value, list | tuple):
            raise _mismatch("a list", value)
        return tuple(converter.structure(value, list[element]))

    return hook


def _is_tuple(cls: Any) -> bool:
    return typing.get_origin(cls) is tuple


def _is_literal(cls: Any) -> bool:
    return typing.get_origin(cls) is Literal


def _structure_union(converter: cattrs.Converter, union: Any) -> Callable[[object, Any], object]:
    choices = {_tag_of(cls): cls for cls in typing.get_args(union)}
    default = next(iter(choices))

    def hook(value: object, _: Any) -> object:
        if not isinstance(value, dict):
            raise _mismatch("a mapping", value)
        fields = dict(value)
        tag = fields.pop(TAG, default)
        if tag not in choices:
            wanted = f"one of {', '.join(map(repr, choices))}"
            raise ConfigError(expected(TAG, wanted, repr(tag)))
        return converter.structure(fields, choices[tag])

    return hook


def _unstructure_union(converter: cattrs.Converter, union: Any) -> Callable[[object], object]:
    del union

    def hook(value: object) -> object:
        return {TAG: _tag_of(type(value))} | converter.unstructure(value, type(value))

    return hook


def _tag_of(cls: type) -> str:
    """Returns "r2d2" for R2D2Config."""
    return cls.__name__.removesuffix("Config").lower()


def _is_union_of_dataclasses(cls: Any) -> bool:
    is_union = typing.get_origin(cls) in (typing.Union, types.UnionType)
    return is_union and all(map(dataclasses.is_dataclass, typing.get_args(cls)))


def _make_converter() -> cattrs.Converter:
    converter = cattrs.Converter(detailed_validation=True)
    converter.register_structure_hook(int, _structure_int)
    converter.register_structure_hook(float, _structure_float)
    converter.register_structure_hook(bool, _structure_bool)
    converter.register_structure_hook(str, _structure_str)
    converter.register_structure_hook_func(_is_literal, _structure_literal)
    converter.register_structure_hook_factory(
        _is_tuple, lambda cls: _structure_tuple(converter, cls)
    )
    converter.register_structure_hook_factory(
        dataclasses.is_dataclass, lambda cls: _structure_dataclass(converter, cls)
    )
    converter.register_structure_hook_factory(
        _is_union_of_dataclasses, lambda union: _structure_union(converter, union)
    )
    converter.register_unstructure_hook_factory(
        _is_union_of_dataclasses, lambda union: _unstructure_union(converter, union)
    )
    return converter


_CONVERTER = _make_converter()
