"""The tree of errors, how a refusal is worded, and the exit code of a command that it ends."""

from collections.abc import Sequence

import pytest

from seed import errors
from seed.errors import ConfigError, SeedError, SpecError, WireError, exits_on_error, expected


def tree_below(cls: type[SeedError]) -> set[type[SeedError]]:
    """Returns every class derived from `cls` in seed/errors.py."""
    below = set()
    for child in cls.__subclasses__():
        if child.__module__ == errors.__name__:
            below |= {child} | tree_below(child)
    return below


def test_every_class_is_drawn_in_the_tree() -> None:
    """Readers look at the docstring first."""
    assert errors.__doc__ is not None
    for cls in tree_below(SeedError):
        assert f"-- {cls.__name__} " in errors.__doc__


def test_value_errors_are_value_errors() -> None:
    """Python's own ValueError catches arguments that are wrong."""
    for cls in (ConfigError, SpecError, WireError):
        assert issubclass(cls, ValueError)


def test_refusals_are_worded_alike() -> None:
    """The field comes first, so that it can be searched for."""
    assert expected("rewards", "8 bytes", 7) == "rewards: expected 8 bytes, got 7"


def test_user_error_ends_a_command_with_its_message(capsys: pytest.CaptureFixture[str]) -> None:
    """It has an exit code and no traceback; any other exception is a bug, and is raised."""

    @exits_on_error("tool")
    def main(argv: Sequence[str]) -> int:
        if not argv:
            raise ConfigError("field: expected a, got b")
        return int(argv[0])

    assert main([]) == 2
    assert capsys.readouterr().err == "tool: field: expected a, got b\n"
    assert main(["7"]) == 7
    with pytest.raises(ValueError, match="invalid literal"):
        main(["x"])
