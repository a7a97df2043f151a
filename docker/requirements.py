"""Prints the packages that pip has to install for one role, without the project itself.

It runs while an image is built, before the sources are copied, so that a change of the code does
not install torch again. The lists stay in pyproject.toml.
"""

import sys
import tomllib
from pathlib import Path


def requirements(role: str) -> list[str]:
    """Returns the requirements of `pip install '.[role]'`, without the project."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *project["optional-dependencies"][role]]


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1])))
