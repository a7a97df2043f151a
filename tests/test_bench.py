"""`seed bench` on the smallest of its cases; what it measures, not how fast."""

import json
import math
import subprocess
import sys

import pytest

from seed.bench import render


def test_bench_reports_every_part_and_the_fraction() -> None:
    """The fraction is the rate over cores / (env + forward + train seconds per step)."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "seed.cli", "bench", "--json", "--cases", "catch"),
            *("--seconds", "1", "--part-seconds", "0.2", "--wire-envs", "8"),
            *("--replay-sequences", "64", "--rounds", "2"),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    case = results["catch"]
    seconds = sum(case[f"{part}_s_per_step"] for part in ("env", "forward", "train"))
    optimum = results["cores"] / seconds
    assert case["fraction_of_optimum"] == pytest.approx(case["env_steps_per_s"] / optimum)
    assert case["env_steps_per_s"] > 0
    # Of two rounds the worse counts, of three the middle one.
    assert len(case["fractions"]) == 2 and case["fraction_of_optimum"] == min(case["fractions"])
    for name in ("wire", "wire_store"):
        assert results[name]["8"]["server"] > 0 and results[name]["8"]["actor"] > 0
    replay = results["replay"]
    assert replay["insert_s_per_sequence"] > 0 and replay["sample_s_per_sequence"] > 0
    # 80 frames, the 3 before them, the state of an LSTM of 512, and small change.
    assert 83 * 84 * 84 < replay["bytes_per_sequence"] < 83 * 84 * 84 * 1.1
    assert "-bound: " in case["verdict"]
    text = render(results)
    assert "catch: seed train catch-vtrace" in text
    assert f"= {case['fraction_of_optimum']:.2f} of it" in text
    assert f"needs {_needed_far_away(case):,} environments in flight" in text


def _needed_far_away(case: dict[str, float]) -> int:
    """By the rule of docs/networks.md, over a round trip of 50 ms."""
    group_s = case["env_s_per_step"] * case["envs_per_group"]
    return math.ceil(case["env_steps_per_s"] * (0.05 + group_s + case["inference_ms_p50"] / 1000))


def test_bench_refuses_a_case_that_does_not_exist() -> None:
    """Naming those that do."""
    command = [sys.executable, "-m", "seed.cli", "bench", "--cases", "nope"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "pong-shallow" in done.stderr + done.stdout
