"""Which of a case's rounds counts; what is measured is made up here."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from seed_bench import bench_case
from seed_bench.bench_case import CASES, PARTS, Run, measure_case


def _run(env_steps_per_s: float) -> Run:
    return Run(env_steps_per_s, 8, {"time/x_share": 1.0}, "actor-bound: really", 2.0, 4)


def _measure(
    monkeypatch: pytest.MonkeyPatch, rates: list[float], costs: list[float]
) -> dict[str, object]:
    """Returns a case of as many rounds as `rates`, on two cores.

    Args:
      rates: env steps per second of each run.
      costs: seconds per env step of each part, measured after each run.
    """
    runs: Iterator[float] = iter(rates)
    parts = iter(costs)
    monkeypatch.setattr(bench_case, "usable_cores", lambda: 2)
    monkeypatch.setattr(bench_case, "_measure_run", lambda *_: _run(next(runs)))
    monkeypatch.setattr(bench_case, "_measure_parts", lambda *_: dict.fromkeys(PARTS, next(parts)))
    return measure_case("catch", rounds=len(rates), seconds=1, part_seconds=1)


@pytest.mark.parametrize(
    ("rates", "counts"), [([30.0], 30.0), ([30.0, 10.0], 10.0), ([30.0, 10.0, 20.0], 20.0)]
)
def test_middle_round_counts_and_of_two_the_worse(
    monkeypatch: pytest.MonkeyPatch, rates: list[float], counts: float
) -> None:
    """All fractions are reported, in the order of the rounds."""
    case = _measure(monkeypatch, rates, [0.01] * len(rates))
    optimum = 2 / 0.03
    assert case["env_steps_per_s"] == counts
    assert case["fractions"] == pytest.approx([rate / optimum for rate in rates])
    assert case["fraction_of_optimum"] == pytest.approx(counts / optimum)


def test_run_is_held_against_the_better_of_the_parts_before_and_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first run has none before it."""
    case = _measure(monkeypatch, [10.0, 10.0, 10.0], [0.01, 0.04, 0.02])
    seconds = [3 * cost for cost in (0.01, 0.01, 0.02)]
    assert case["fractions"] == pytest.approx([10 * each / 2 for each in seconds])


def test_a_command_that_fails_is_an_error_with_its_output(tmp_path: Path) -> None:
    """Not a table with a gap."""
    with pytest.raises(bench_case.SeedError, match="nothing_here"):
        bench_case.run_module(["seed_bench.nothing_here"])


def test_every_case_is_a_preset_of_seed_train() -> None:
    """Its other words are flags."""
    from learner.config.presets import PRESETS

    assert all(command[0] in PRESETS for command in CASES.values())
