"""Config dataclasses to plain data and back: nothing is guessed, everything is named."""

import dataclasses
import json
from typing import Any, Literal

import pytest

from seed.errors import ConfigError
from seed.serialization import structure, unstructure


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner:
    """A part of a config."""

    sizes: tuple[int, ...] = (1, 2)
    kind: Literal["a", "b"] = "a"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outer:
    """A config."""

    rate: float = 0.5
    is_on: bool = True
    name: str = "x"
    limit: int | None = None
    inner: Inner = Inner()


def test_plain_data_describes_the_config_again() -> None:
    """Also after a journey as JSON."""
    config = Outer(rate=1e-4, name="y", limit=3, inner=Inner(sizes=(4,), kind="b"))
    assert structure(json.loads(json.dumps(unstructure(config))), Outer) == config


def test_absent_fields_take_their_defaults() -> None:
    """At every depth."""
    assert structure({"inner": {"kind": "b"}}, Outer) == Outer(inner=Inner(kind="b"))


def test_text_that_yaml_does_not_take_for_a_number_is_one() -> None:
    """YAML reads 6e-4 as a string."""
    assert structure({"rate": "6e-4"}, Outer).rate == 6e-4


@pytest.mark.parametrize(
    ("plain", "refusal"),
    [
        ({"rate": "fast"}, "rate: expected a number, got 'fast'"),
        ({"rate": "nan"}, "rate: expected a number, got 'nan'"),
        ({"rate": True}, "rate: expected a number, got True"),
        ({"is_on": 1}, "is_on: expected true or false, got 1"),
        ({"name": 1}, "name: expected a string, got 1"),
        ({"inner": {"sizes": "12"}}, "inner.sizes: expected a list, got '12'"),
        ({"inner": {"sizes": [1, 2.5]}}, "inner.sizes[1]: expected an integer, got 2.5"),
        ({"inner": {"kind": "c"}}, "inner.kind: expected one of 'a', 'b', got 'c'"),
        ({"inner": []}, "inner: expected a mapping, got []"),
        ({"inner": {"size": 1}}, "inner.size: unknown field"),
    ],
)
def test_value_that_does_not_fit_is_refused(plain: dict[str, Any], refusal: str) -> None:
    """With the path of its field."""
    with pytest.raises(ConfigError) as caught:
        structure(plain, Outer)
    assert str(caught.value) == refusal


def test_every_value_that_does_not_fit_is_named() -> None:
    """One line each, below the name of the whole."""
    with pytest.raises(ConfigError) as caught:
        structure({"rate": None, "inner": {"kind": 1}}, Outer, "settings")
    lines = str(caught.value).splitlines()
    assert [line.partition(":")[0] for line in lines] == ["settings.rate", "settings.inner.kind"]
