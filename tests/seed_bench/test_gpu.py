"""`make bench-gpu` in its smallest form, on a CPU: every figure is present."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from seed_bench.gpu import FORWARD_KNOBS, UPDATE_KNOBS


def leaves(value: Any) -> Iterator[Any]:
    """Yields the values at the ends of nested dicts."""
    if isinstance(value, dict):
        for child in value.values():
            yield from leaves(child)
    else:
        yield value


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_smoke_measures_every_part() -> None:
    """A figure that cannot be measured is a text that says why."""
    command = [sys.executable, "-m", "seed_bench.gpu", "--smoke"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert results["gpu"] is None
    parts = ("forward_ms", "update_ms", "copy_gib_per_s", "load", "run")
    for part in parts:
        values = list(leaves(results[part]))
        assert values
        assert [x for x in values if not isinstance(x, int | float)] == []
    assert results["forward_ms"]["impala_shallow"].keys() == FORWARD_KNOBS.keys()
    for algorithm in ("vtrace", "r2d2"):
        assert results["update_ms"][algorithm]["impala_shallow"].keys() == UPDATE_KNOBS.keys()
        run = results["run"]["seed/Null-v0"][algorithm]
        assert 0 <= run["policy/max_abs_log_rho_at_zero_lag"] < 1e-4


def test_part_that_is_out_of_time_says_so() -> None:
    """The result comes in time, with the parts that were measured."""
    command = [sys.executable, "-m", "seed_bench.gpu", "--smoke", "--seconds", "0"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert set(leaves(results["forward_ms"])) == {"left out: out of time"}
    assert set(leaves(results["run"])) == {"left out: out of time"}
