"""`seed load` on its smallest points: what it measures, and not how fast."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from seed.errors import ConfigError
from seed_bench.load import LoadArgs, render, shape
from tools.plot_scale import plot


def test_load_measures_every_point_of_every_series(tmp_path: Path) -> None:
    """Learner and generator are measured over the same time; table and plot show all points."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "seed.cli", "load", "--json", "--seconds", "0.3"),
            *("--envs", "1", "128", "--series", "wire", "store"),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    for series in ("wire", "store"):
        assert [point["num_envs"] for point in results[series]] == [1, 128]
        assert [point["num_streams"] for point in results[series]] == [1, 2]
        for point in results[series]:
            assert min(point.values()) > 0
            assert point["inference_ms_p50"] < point["round_trip_ms_p50"]
            assert point["batch_size_mean"] <= point["num_envs"]
    # There are 21 frames an environment.
    assert results["store"][1]["learner_bytes_per_env"] > 21 * 84 * 84
    text = render(results)
    assert "store: policy store, a step takes 0 us" in text
    assert text.count("over 50 ms this learner needs") == 2
    plot(results, tmp_path / "scale.png")
    assert (tmp_path / "scale.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("num_envs", "expected"),
    [(1, (1, 1, 1)), (2, (1, 2, 1)), (16, (1, 2, 8)), (64, (1, 2, 32)), (4096, (64, 2, 32))],
)
def test_environments_are_spread_over_streams(
    num_envs: int, expected: tuple[int, int, int]
) -> None:
    """As few streams as possible hold them, in two groups of 32."""
    assert shape(num_envs) == expected


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        ({"series": ("fast",)}, "series: expected of wire, .* got 'fast'"),
        ({"envs": (100,)}, "envs: expected .* got 100"),
        ({"envs": (0,)}, "envs: expected .* got 0"),
        ({"seconds": 0.0}, "seconds: expected above 0"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict, refusal: str) -> None:
    """The error names the flag."""
    with pytest.raises(ConfigError, match=f"^{refusal}"):
        LoadArgs(**settings)
