"""seed_bench/parts/env.py prints the figures that `seed bench` reads."""

import json

import pytest

from seed_bench.parts.env import main


def test_bench_prints_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    """Positive seconds per env step, by processor and by clock."""
    flags = ["--env-id", "seed/Catch-v0", "--seconds", "0.05", "--num-envs", "4", "--json"]
    assert main(flags) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["env_id"] == "seed/Catch-v0"
    assert 0 < report["env_wall_s_per_step"] < 1
    assert 0 < report["env_cpu_s_per_step"] < 1
    assert report["env_steps"] % 4 == 0


def test_bench_of_an_unknown_environment_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    """The message names env_id."""
    assert main(["--env-id", "Nothing-v0"]) == 2
    assert "env_id" in capsys.readouterr().err
