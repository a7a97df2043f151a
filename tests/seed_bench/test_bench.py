"""`seed bench` on the smallest of its cases; what it measures, not how fast."""

import json
import math
import subprocess
import sys
import threading

import pytest

from seed.errors import SeedError
from seed_bench.bench import render
from seed_bench.parts.wire import wait_for_steps


def test_bench_reports_every_part_and_the_fraction() -> None:
    """The fraction is the rate over cores / (env + forward + train seconds per step)."""
    done = _run_module(
        *("seed.cli", "bench", "--json", "--cases", "catch"),
        *("--seconds", "1", "--part-seconds", "0.2", "--wire-envs", "8"),
        *("--replay-sequences", "64", "--rounds", "2"),
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
    """By the rule of docs/links.md, over a round trip of 50 ms."""
    group_s = case["env_s_per_step"] * case["envs_per_group"]
    return math.ceil(case["env_steps_per_s"] * (0.05 + group_s + case["inference_ms_p50"] / 1000))


@pytest.mark.parametrize(
    ("flags", "field"),
    [
        (("--cases", "nope"), "of pong-shallow, pong-shallow-once"),
        (("--wire-envs", "0"), "wire_envs"),
        (("--replay-sequences", "20"), "replay_sequences"),
    ],
)
def test_bench_refuses_what_it_cannot_measure(flags: tuple[str, ...], field: str) -> None:
    """Before it measures anything, naming the field."""
    done = _run_module("seed.cli", "bench", *flags)
    assert done.returncode == 2
    assert field in done.stderr


@pytest.mark.parametrize(
    ("part", "flags", "field"),
    [
        ("wire", ("--envs-per-group", "0"), "envs_per_group"),
        ("replay", ("--sequences", "20"), "sequences"),
        ("forward", ("--run", "x", "--batch-sizes", "0"), "batch_sizes"),
        ("train", ("--run", "x", "--seconds", "0"), "seconds"),
    ],
)
def test_parts_refuse_what_cannot_be_measured(
    part: str, flags: tuple[str, ...], field: str
) -> None:
    """Some of it would be waited for for ever."""
    done = _run_module("seed_bench.parts.learner", part, *flags)
    assert done.returncode in (1, 2)
    assert field in done.stderr


def test_an_actor_that_ends_is_not_waited_for() -> None:
    """What it said says why."""
    command = [sys.executable, "-c", "raise SystemExit('refused')"]
    actor = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    with pytest.raises(SeedError, match="the actor ended with code 1:\nrefused"):
        wait_for_steps(threading.Event(), actor)


def _run_module(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True)
