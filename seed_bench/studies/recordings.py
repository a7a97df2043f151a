"""The file of recorded arrivals, docs/results/arrivals.json: `record_arrivals.py` writes it,
`simulate_batching.py` plays it back."""

import json
from pathlib import Path
from typing import Any, NamedTuple

# The field of the file that holds the recordings.
RECORDINGS_KEY = "recordings"


class Recording(NamedTuple):
    """How a fleet reported."""

    num_connected_envs: int
    """All connected environments, including those of actors that no longer report."""
    envs_per_group: int
    think_s: list[list[float]]
    """For each group that reports: seconds from an answer to the next step, in order."""


def to_json(recordings: dict[str, Recording]) -> dict[str, Any]:
    """Returns the contents of a file of recordings, without its header; times in milliseconds."""
    return {
        name: {
            "num_connected_envs": recording.num_connected_envs,
            "envs_per_group": recording.envs_per_group,
            "think_ms": [[round(1000 * s, 2) for s in times] for times in recording.think_s],
        }
        for name, recording in recordings.items()
    }


def load_recordings(path: Path) -> dict[str, Recording]:
    """Returns the recordings of a file, by scenario."""
    held = json.loads(path.read_text())[RECORDINGS_KEY]
    return {
        name: Recording(
            recording["num_connected_envs"],
            recording["envs_per_group"],
            [[ms / 1000 for ms in times] for times in recording["think_ms"]],
        )
        for name, recording in held.items()
    }
