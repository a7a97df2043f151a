"""`seed bench` on its smallest case: what it measures, and not how fast."""

import json
import math
import subprocess

import pytest

from seed import cli
from seed_bench.bench import render
from tests.support.processes import command


def test_bench_reports_every_part_and_the_fraction() -> None:
    """The fraction is the rate over cores / (env + forward + train seconds per step)."""
    flags = (
        *("--json", "--cases", "catch", "--rounds", "1", "--replay-sequences", "64"),
        *("--seconds", "1", "--part-seconds", "0.2", "--wire-envs", "8"),
    )
    done = subprocess.run(command("bench", *flags), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    case = results["catch"]
    seconds = sum(case[f"{part}_s_per_step"] for part in ("env", "forward", "train"))
    optimum = results["cores"] / seconds
    assert case["fraction_of_optimum"] == pytest.approx(case["env_steps_per_s"] / optimum)
    assert case["env_steps_per_s"] > 0
    assert case["fractions"] == [case["fraction_of_optimum"]]
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
    """Returns the need by the rule of docs/links.md, over a round trip of 50 ms."""
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
def test_bench_refuses_what_it_cannot_measure(
    flags: tuple[str, ...], field: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the field, and comes before any measurement."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", *flags])
    assert ended.value.code == 2
    assert field in capsys.readouterr().err
