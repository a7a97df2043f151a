"""Any config file and any settings of a learner give a config, or an error that names a field."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from learner.config.config_file import dump_config, load_config
from learner.config.presets import PRESETS
from learner.config.run_config import RunConfig
from seed.env_config import EnvConfig, env_settings_from_json
from seed.errors import ConfigError
from seed.serialization import structure, unstructure
from tests.fuzz.profiles import QUICK

NUMBERS = st.one_of(st.integers(), st.just(10**400), st.floats(), st.sampled_from([0, 1, -1, 0.5]))
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=12))
TREES = st.recursive(
    SCALARS,
    lambda children: st.one_of(
        st.lists(children, max_size=3), st.dictionaries(st.text(max_size=8), children, max_size=3)
    ),
    max_leaves=8,
)
PLAIN = unstructure(PRESETS["cartpole-r2d2"].config)

# Texts that YAML and JSON read in unusual ways.
STRANGE_TEXTS = [
    "",
    "\0",
    "- a\n- b",
    "a: [",
    "when: 2024-99-99",
    "big: " + "9" * 5_000,
    "&a [*a]",
    "? {a: 1}\n: 2",
    "!!python/object/apply:os.system ['true']",
    "[" * 50_000,
    "rng_seed: 1e400",
    "rng_seed: .nan",
    "env: 3",
    "{1: 2}",
]


def paths(tree: Any, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Returns the path of every field of nested dicts."""
    found = []
    for key, child in tree.items():
        found.append((*prefix, key))
        if isinstance(child, dict):
            found += paths(child, (*prefix, key))
    return found


def replaced(tree: dict[str, Any], path: tuple[str, ...], value: object) -> dict[str, Any]:
    """Returns a copy of `tree` with one field changed."""
    key, *rest = path
    return tree | {key: replaced(tree[key], tuple(rest), value) if rest else value}


def assert_config_or_named(plain: object) -> None:
    """Structures `plain`; a config that is accepted must survive a round trip."""
    try:
        config = structure(plain, RunConfig)
    except ConfigError as error:
        assert str(error)
        return
    assert structure(unstructure(config), RunConfig) == config


@QUICK
@given(st.sampled_from(paths(PLAIN)), TREES)
def test_config_with_one_strange_field_is_sound_or_refused(
    path: tuple[str, ...], value: object
) -> None:
    """Any field may hold anything."""
    assert_config_or_named(replaced(PLAIN, path, value))


@QUICK
@given(TREES)
def test_anything_that_is_no_config_is_refused(plain: object) -> None:
    """A list, a number and unknown keys are refused."""
    assert_config_or_named(plain)


@QUICK
@given(st.text(max_size=60))
def test_settings_from_the_wire_are_sound_or_refused(text: str) -> None:
    """The settings come from a learner, which may be another program."""
    try:
        assert isinstance(env_settings_from_json(text), EnvConfig)
    except ConfigError as error:
        assert "env_settings_json" in str(error) or "env_kwargs" in str(error)


@pytest.mark.parametrize("text", STRANGE_TEXTS, ids=range(len(STRANGE_TEXTS)))
def test_strange_text_is_sound_or_refused(text: str, tmp_path: Path) -> None:
    """The text is a config file, settings, or an environment's keyword arguments."""
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="config.yaml"):
        load_config(path)
    with pytest.raises(ConfigError):
        env_settings_from_json(text.replace("'", '"'))
    with pytest.raises(ConfigError, match="env_kwargs"):
        EnvConfig(env_kwargs=text)


@QUICK
@given(st.integers(0, 10_000), st.characters())
def test_config_file_with_a_strange_character_is_sound_or_refused(
    where: int, character: str
) -> None:
    """One character of a good file is changed."""
    text = yaml.safe_dump(PLAIN, sort_keys=False)
    where %= len(text)
    changed = text[:where] + character + text[where + 1 :]
    try:
        plain = yaml.safe_load(changed)
    except (yaml.YAMLError, ValueError):
        return
    assert_config_or_named(plain)


def test_every_preset_survives_its_file(tmp_path: Path) -> None:
    """The fuzz starts from configs that are accepted."""
    for name, preset in PRESETS.items():
        dump_config(preset.config, tmp_path / "config.yaml", name=name)
        assert load_config(tmp_path / "config.yaml") == preset.config
