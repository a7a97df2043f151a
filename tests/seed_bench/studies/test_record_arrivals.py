"""Recordings of real actors: what is recorded, and that a file gives it back."""

import json
from pathlib import Path

import pytest

from seed_bench.studies.record_arrivals import SCENARIOS, record
from seed_bench.studies.recordings import RECORDINGS_KEY, Recording, load_recordings, to_json
from seed_bench.studies.simulate_batching import RECORDINGS


@pytest.mark.slow
def test_actor_that_is_stopped_is_connected_and_silent() -> None:
    """Three real actors play Pong, one is stopped, and two groups of each other one report."""
    recording = record(SCENARIOS["one dead"], warm_up_s=0.0, seconds=1.0)
    assert recording.num_connected_envs == 3 * 2 * recording.envs_per_group
    assert len(recording.think_s) == 4
    assert all(0 < seconds < 1 for times in recording.think_s for seconds in times)


def test_recordings_survive_their_file(tmp_path: Path) -> None:
    """Times are kept to the hundredth of a millisecond."""
    recordings = {"steady": Recording(4, 2, [[0.01234, 0.5], [0.1]])}
    path = tmp_path / "arrivals.json"
    path.write_text(json.dumps({RECORDINGS_KEY: to_json(recordings)}))
    (held,) = load_recordings(path).values()
    assert held[:2] == (4, 2)
    assert held.think_s == [pytest.approx([0.01234, 0.5]), pytest.approx([0.1])]


def test_committed_file_holds_every_scenario() -> None:
    """docs/performance.md has the results of the rules for each of them."""
    assert load_recordings(RECORDINGS).keys() == SCENARIOS.keys()
