"""Prints what pip has to install for one role, without the project itself.

Run while an image is built, before the sources are copied: so that a change of the code does
not install torch anew. The lists stay in pyproject.toml.
"""

import sys
import tomllib
from pathlib import Path


def requirements(role: str) -> list[str]:
    """Returns what `pip install '.[role]'` would install beside the project."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *project["optional-dependencies"][role]]


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1])))
