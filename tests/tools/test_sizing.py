"""Sizing a fleet from measured costs."""

import json
from pathlib import Path

import pytest

from tools.sizing import Costs, main, read_costs, size_fleet

COSTS = Costs(
    env=300e-6,
    actor_wire=20e-6,
    learner_wire=30e-6,
    steps_per_s_served=50_000,
    network={"shallow": (100e-6, 300e-6)},
)


def test_fleet_pays_for_every_step() -> None:
    """100,000 frames are 25,000 steps, each of 320 us at the actors."""
    fleet = size_fleet(100_000, COSTS)
    assert fleet.steps_per_s == 25_000
    assert fleet.actor_cores == pytest.approx(8)
    assert fleet.serving_cores == pytest.approx(0.75)
    assert fleet.network_cores["shallow"] == pytest.approx(10)
    assert fleet.megabytes_per_s == pytest.approx(25_000 * 7_070 / 1e6)


@pytest.mark.parametrize(("frames_per_s", "expected"), [(200_000, 1), (200_004, 2)])
def test_another_learner_serves_what_one_cannot(frames_per_s: float, expected: int) -> None:
    """50,000 steps fit one learner, and one step more needs another."""
    assert size_fleet(frames_per_s, COSTS).learner_processes == expected


def test_costs_are_read_from_the_files_of_evidence(tmp_path: Path, capsys) -> None:
    """The tool reads the output of seed bench and seed load."""
    case = {"env_s_per_step": 3e-4, "forward_s_per_step": 1e-4, "train_s_per_step": 3e-4}
    bench = {
        "wire_store": {"32": {"actor": 2e-5, "server": 3e-5}},
        "pong-shallow-once": case,
        "pong-nature-once": case,
    }
    scale = {"store": [{"env_steps_per_s": 10_000.0}, {"env_steps_per_s": 50_000.0}]}
    assert read_costs(bench, scale).steps_per_s_served == 50_000
    (tmp_path / "bench.json").write_text(json.dumps(bench))
    (tmp_path / "scale.json").write_text(json.dumps(scale))
    flags = ["--bench", str(tmp_path / "bench.json"), "--scale", str(tmp_path / "scale.json")]
    assert main(flags) == 0
    assert (
        "| 1,000,000 | 250,000 | 80.0 | 7.5 | 5 | 1,768 | 100.0 | 100.0 |"
        in capsys.readouterr().out
    )


def test_results_without_a_case_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file is of another case, or does not exist."""
    (tmp_path / "bench.json").write_text('{"wire_store": {}}')
    flags = ["--bench", str(tmp_path / "bench.json")]
    assert main(flags) == 2
    assert "expected results of pong-shallow-once" in capsys.readouterr().err
    assert main([*flags, "--scale", str(tmp_path / "none.json")]) == 2
    assert "none.json: expected what seed load --json prints" in capsys.readouterr().err
