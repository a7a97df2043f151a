"""A run's config.yaml, and the environment settings that actors receive.

The file can repeat the run: it holds every field of `RunConfig`. Under `provenance` it also
tells people which code ran on which machine; loading ignores that. Read at start by every role.
"""

import os
from pathlib import Path
from typing import Any

import yaml

from learner.config.run_config import RunConfig
from seed.errors import ConfigError, expected
from seed.provenance import provenance
from seed.serialization import structure, unstructure

_PROVENANCE = "provenance"


def dump_config(config: RunConfig, path: Path, *, name: str) -> None:
    """Writes `config` to `path` as YAML; an existing file is replaced whole or not at all.

    Args:
      config: What to write.
      path: The file, by convention `<run dir>/config.yaml`.
      name: The preset that the run started from.
    """
    document = unstructure(config) | {_PROVENANCE: provenance(name)}
    aside = path.with_name(f".{path.name}.tmp")
    aside.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    os.replace(aside, path)


def load_config(path: Path) -> RunConfig:
    """Returns the config in `path`; raises ConfigError naming the field that is wrong."""
    document = read_document(path)
    document.pop(_PROVENANCE, None)
    try:
        return structure(document, RunConfig)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def load_provenance(path: Path) -> dict[str, Any]:
    """Returns the `provenance` in `path`: name, command, git_commit, versions."""
    return read_document(path).get(_PROVENANCE, {})


def read_document(path: Path) -> dict[str, Any]:
    """Returns the YAML mapping in `path`; checks only that it is a mapping."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(expected(str(path), "a readable file", error.strerror)) from error
    # Some errors in a text are no YAMLError: a 13th month is a ValueError.
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(expected(str(path), "YAML", error)) from error
    if not isinstance(document, dict):
        raise ConfigError(expected(str(path), "a YAML mapping", type(document).__name__))
    return document
