"""The file of recorded arrivals is read as it was written."""

import json
from pathlib import Path

from seed_bench.studies.recordings import RECORDINGS_KEY, Recording, load_recordings, to_json


def test_recordings_are_read_as_written(tmp_path: Path) -> None:
    """Times are kept to a hundredth of a millisecond."""
    recordings = {
        "steady": Recording(8, 4, [[0.001, 0.0025], [0.00302]]),
        "silent": Recording(0, 1, []),
    }
    path = tmp_path / "arrivals.json"
    path.write_text(json.dumps({RECORDINGS_KEY: to_json(recordings)}))
    assert load_recordings(path) == recordings


def test_times_are_rounded() -> None:
    """The file would be three times as long with all their digits."""
    held = to_json({"a": Recording(1, 1, [[0.0012345]])})
    assert held["a"]["think_ms"] == [[1.23]]
