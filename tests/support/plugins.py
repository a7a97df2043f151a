"""Packages of other authors, which tests write to a directory that Python then searches."""

import sys
from collections.abc import Mapping
from pathlib import Path


def write_module(directory: Path, file: str, source: str) -> Path:
    """Writes a module below `directory`, which Python is to search, and returns its path.

    A module of that name that an earlier test imported is forgotten.
    """
    path = directory / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source, encoding="utf-8")
    sys.modules.pop(file.removesuffix(".py").replace("/", "."), None)
    return path


def install(directory: Path, package: str, groups: Mapping[str, Mapping[str, str]]) -> None:
    """Makes `directory` hold the metadata of an installed package, as pip writes it.

    Args:
      directory: to be searched by Python.
      package: name of the distribution.
      groups: entry points, "module:Name" by name by group.
    """
    metadata = directory / f"{package.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = []
    for group, names in groups.items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in names.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
