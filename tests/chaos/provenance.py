"""Where and from what a file of evidence was made."""

import datetime
import subprocess
from pathlib import Path
from typing import Any

from tools.results import describe_hardware


def describe_machine(command: str) -> dict[str, Any]:
    """Returns the fields that every file of docs/results/ begins with."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
    )
    return {
        "command": command,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "hardware": describe_hardware(),
        "git_commit": commit.stdout.strip() or None,
    }
