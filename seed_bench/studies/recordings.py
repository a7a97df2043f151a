"""The file of recorded arrivals, docs/results/arrivals.json: written by
`record_arrivals.py`, played back by `simulate_batching.py`."""

import json
from pathlib import Path
from typing import Any, NamedTuple

# Field of the file that holds them.
RECORDINGS_KEY = "recordings"


class Recording(NamedTuple):
    """How a fleet reported."""

    num_connected_envs: int
    """Those of actors that report no more included."""
    envs_per_group: int
    think_s: list[list[float]]
    """Of each group that reports: seconds from an answer to the next step, in order."""


def to_json(recordings: dict[str, Recording]) -> dict[str, Any]:
    """Returns what a file of recordings holds besides its header; times in milliseconds."""
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
