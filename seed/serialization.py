"""Config dataclasses <-> plain dicts, lists and numbers, strictly.

Used for a run's config.yaml and for the environment settings on the wire. An
unknown key or a value of the wrong type is a `ConfigError` naming the field by
its full path. Knows nothing of files.
"""

import dataclasses
import math
import typing
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar

import cattrs
from cattrs.gen import make_dict_structure_fn

from seed.errors import ConfigError, expected

Config = TypeVar("Config")


def structure(plain: object, cls: type[Config], field: str = "") -> Config:
    """Returns the dataclass `cls` described by `plain`; absent fields take defaults.

    Args:
      plain: Nested dicts as read from YAML or JSON.
      cls: The dataclass to make.
      field: Name of the whole in error messages; empty if `plain` is a whole file.

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


def register_open_set(base: type, class_of: Callable[[dict[str, Any]], type]) -> None:
    """Lets fields of type `base` hold any subclass of it, those of other packages included.

    cattrs' own strategies for subclasses and tagged unions list the classes when the converter
    is made; here a class may be imported when its name is read.

    Args:
      base: class of the field.
      class_of: returns the subclass that a mapping describes, or raises a ConfigError that
        begins with the name of the field in the mapping that is wrong.
    """

    def structure_subclass(value: object, _: Any) -> object:
        if not isinstance(value, dict):
            raise _mismatch("a mapping", value)
        return _CONVERTER.structure(value, class_of(value))

    _CONVERTER.register_structure_hook_func(lambda cls: cls is base, structure_subclass)
    _CONVERTER.register_unstructure_hook_func(
        lambda cls: cls is base, lambda value: _CONVERTER.unstructure(value, type(value))
    )


def _describe(error: BaseException, field: str) -> Iterator[str]:
    """Yields the sentences of one error, or of cattrs' tree of errors."""
    for entry in cattrs.transform_error(error, field, _sentences):
        sentences, _, path = entry.rpartition(" @ ")
        for line in sentences.splitlines():
            # Indented lines, as in tracebacks, continue the sentence before them.
            yield line if line.startswith(" ") else f"{path}{line}".removeprefix(".")


def _sentences(error: BaseException, _: type | None) -> str:
    """Returns the text that follows the path of the field where `error` was raised."""
    if isinstance(error, cattrs.ForbiddenExtraKeysError):
        return "\n".join(f".{key}: unknown field" for key in sorted(map(str, error.extra_fields)))
    if isinstance(error, ConfigError):
        # The text begins with the name of a nested field, or with a colon as `_mismatch` writes it.
        return str(error) if str(error).startswith(":") else f".{error}"
    return f": {error}"


def _mismatch(wanted: str, value: object) -> ConfigError:
    """Returns a refusal without a field: `_describe` puts the path before it."""
    return ConfigError(expected("", wanted, repr(value)))


def _structure_int(value: object, _: type) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _mismatch("an integer", value)
    return value


def _structure_float(value: object, _: type) -> float:
    # YAML reads the common "6e-4" as a string, so text that is a number is accepted.
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
    """Makes a tuple from a list: cattrs alone would split a string into characters."""
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
    return converter


_CONVERTER = _make_converter()
