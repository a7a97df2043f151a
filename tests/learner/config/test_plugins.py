"""Names that other packages define: which are found, and the errors for all others."""

from pathlib import Path

import pytest

from learner.config.plugins import Kind, check_name, installed, load
from seed.errors import ConfigError
from tests.support.plugins import install, write_module

TOYS = Kind("toy", "seed_rl.test_toys", ("ball", "kite"))


def test_module_and_name_are_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both may have dots: a module in a package, and a class in a class."""
    write_module(tmp_path, "door_a/toys.py", "class Box:\n    class Lid:\n        size = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    lid = load(TOYS, "door_a.toys:Box.Lid")
    assert isinstance(lid, type) and vars(lid)["size"] == 3


def test_entry_point_of_an_installed_package_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package's metadata holds the name, and nothing else is imported."""
    write_module(tmp_path, "door_b.py", "top = 'a top'\n")
    install(tmp_path, "door-b", {"seed_rl.test_toys": {"top": "door_b:top"}})
    monkeypatch.syspath_prepend(tmp_path)
    assert list(installed(TOYS)) == ["top"]
    assert load(TOYS, "top") == "a top"


def test_unknown_name_is_refused_with_those_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error lists the built-in names, those of installed packages, and the form module:Name."""
    install(tmp_path, "door-c", {"seed_rl.test_toys": {"top": "door_c:top"}})
    monkeypatch.syspath_prepend(tmp_path)
    wanted = "^toy: expected one of 'ball', 'kite', 'top', or module:Name, got 'drum'$"
    with pytest.raises(ConfigError, match=wanted):
        check_name(TOYS, "drum")
    with pytest.raises(ConfigError, match=wanted):
        load(TOYS, "drum")


@pytest.mark.parametrize("name", ["", ":", "a:", ":b", "a:b:c", "a b:c", "a..b:c", "./a.py:c"])
def test_name_of_another_form_is_refused(name: str) -> None:
    """The refusal comes before any import."""
    with pytest.raises(ConfigError, match="^toy: expected one of 'ball', 'kite', or module:Name"):
        check_name(TOYS, name)


@pytest.mark.parametrize("name", ["ball", "no_such_module:Thing"])
def test_name_is_checked_without_an_import(name: str) -> None:
    """Flags are parsed before any heavy module is loaded."""
    check_name(TOYS, name)


def test_name_of_two_packages_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names both packages, and says that module:Name tells them apart."""
    for package in ("door-d", "door-e"):
        directory = tmp_path / package
        install(directory, package, {"seed_rl.test_toys": {"top": "x:y"}})
        monkeypatch.syspath_prepend(directory)
    with pytest.raises(ConfigError, match="^toy: expected a name that .*got 'top' of door-d an"):
        load(TOYS, "top")


@pytest.mark.parametrize("module", ["no_such_module", "no_such_module.sub", "json.no_such_part"])
def test_module_that_is_not_there_is_named(module: str) -> None:
    """The error holds Python's own reason."""
    with pytest.raises(ConfigError) as caught:
        load(TOYS, f"{module}:x")
    assert str(caught.value).startswith("toy: expected a module in the current folder, on PYTHON")
    assert f"got {module!r} (No module named " in str(caught.value)


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("def f():\n    return 1 / 0\nf()\n", ("line 2, in f", "ZeroDivisionError: division by")),
        ("import no_such_library\n", ("line 1, in <module>", "named 'no_such_library'")),
        ("def f(:\n", ("line 1", "SyntaxError: ")),
    ],
)
def test_what_a_module_raises_is_shown_where_it_was_raised(
    source: str, shown: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The author of the module sees the line, and no frame of the import itself."""
    path = write_module(tmp_path, "door_f.py", source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError) as caught:
        load(TOYS, "door_f:x")
    message = str(caught.value)
    assert message.startswith("toy: expected a module that can be imported, got 'door_f', which")
    assert str(path) in message
    assert all(text in message for text in shown)
    assert "importlib" not in message and "plugins.py" not in message


def test_name_that_a_module_does_not_define_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the file, which may be another than the user expects."""
    path = write_module(tmp_path, "door_g.py", "x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError) as caught:
        load(TOYS, "door_g:y")
    assert str(caught.value) == f"toy: expected a name that door_g ({path}) defines, got 'y'"
