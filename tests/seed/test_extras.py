"""The advice where torch or gymnasium is not installed, which has to work."""

import importlib.util
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from seed import extras
from seed.errors import ConfigError
from seed.extras import advice, require_extra

ROOT = Path(__file__).parents[2]
PIP = f"run: {sys.executable} -m pip install "


def test_extra_that_is_there_is_not_asked_for() -> None:
    """Nothing is imported to find out."""
    require_extra("learner", "torch")


def test_checkout_is_installed_with_the_extra() -> None:
    """pip takes the command as it is, and finds the extra in the checkout."""
    assert advice("learner") == f"{PIP}-e '{ROOT}[learner]'"
    command = shlex.split(advice("learner").removeprefix("run: "))
    offline = ("--dry-run", "--no-deps", "--no-build-isolation", "--no-index")
    done = subprocess.run([*command, *offline], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "does not provide the extra" not in done.stderr


def test_packages_are_named_without_a_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """The project is on no index, but its requirements are."""
    monkeypatch.setattr(extras, "_PROJECT", Path("/nowhere"))
    assert advice("actor") == f"{PIP}ale-py gymnasium"
    assert "'torch>=2.6'" in advice("learner")


def test_image_is_named_where_there_is_no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers cannot install anything."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: None)
    wanted = "^torch is not installed; there is no pip here: use SEED's image seed-learner, or"
    with pytest.raises(ConfigError, match=wanted):
        require_extra("learner", "torch")
