"""What to do where an optional part of the project is not installed.

The project is on no package index: `pip install seed-rl[learner]` would install nothing, or
something else. So the advice depends on how this copy was installed.
"""

import importlib.metadata
import importlib.util
import re
import shlex
import sys
from pathlib import Path

from seed.errors import ConfigError

_PROJECT = Path(__file__).resolve().parents[1]


def require_extra(extra: str, module: str) -> None:
    """Raises ConfigError unless `module`, which belongs to an extra of pyproject.toml, is there."""
    if importlib.util.find_spec(module) is None:
        raise ConfigError(f"{module} is not installed; {advice(extra)}")


def advice(extra: str) -> str:
    """Returns how to install an extra here: a command for a shell, or another image."""
    if importlib.util.find_spec("pip") is None:
        return f"there is no pip here: use SEED's image seed-{extra}, or `make setup` in a checkout"
    return f"run: {shlex.join([sys.executable, '-m', 'pip', 'install', *_wanted(extra)])}"


def _wanted(extra: str) -> list[str]:
    """Returns pip's arguments: the checkout with the extra, or else the extra's packages."""
    if (_PROJECT / "pyproject.toml").exists():
        return ["-e", f"{_PROJECT}[{extra}]"]
    requirements = importlib.metadata.requires("seed-rl") or []
    of_extra = re.compile(rf"(?P<package>[^;]+?)\s*;\s*extra == ['\"]{extra}['\"]")
    return [match["package"] for line in requirements if (match := of_extra.fullmatch(line))]
