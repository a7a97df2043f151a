"""The load generator against a small learner: what it does, and not how fast."""

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seed.errors import ConfigError, IncompatibleError, LearnerUnavailableError
from seed_bench.parts.simulated_actors import GeneratorArgs, generate, main
from tests.actors.fake_learner import FakeLearner, serving


def load(address: str, **changes: Any) -> dict[str, float]:
    """Returns the report of a short run."""
    settings: dict[str, Any] = {"envs_per_group": 3, "warm_up_steps": 2, "seconds": 0.5}
    return asyncio.run(generate(GeneratorArgs(learner=address, **{**settings, **changes})))


def test_every_group_of_every_actor_is_served(tmp_path: Path) -> None:
    """Each stream behaves as one actor."""
    address, learner = f"unix:{tmp_path}/learner.sock", FakeLearner()
    with serving(learner, address):
        report = load(address, num_streams=3)
    assert [hello.group_sizes for hello in learner.hellos] == [(3, 3)] * 3
    assert len({hello.run_id for hello in learner.hellos}) == 3
    assert {outputs.observations[0].shape for outputs in learner.outputs} == {(3, 84, 84)}
    starts = [outputs.group for outputs in learner.outputs if outputs.is_first.all()]
    assert sorted(starts) == [0, 0, 0, 1, 1, 1]
    # Each group gets two answers before the measurement.
    assert len(learner.outputs) > 2 * len(starts)
    assert 0 < report["env_steps"] <= 3 * len(learner.outputs)
    assert 0 < report["round_trip_ms_p50"] <= report["round_trip_ms_p99"]


def test_step_takes_as_long_as_it_is_told(tmp_path: Path) -> None:
    """The step takes a quarter of an hour, so no message follows the first answers."""
    address, learner = f"unix:{tmp_path}/learner.sock", FakeLearner()
    with serving(learner, address), pytest.raises(LearnerUnavailableError, match="^no answer"):
        load(address, num_streams=2, step_us=1e9, warm_up_steps=1)
    assert len(learner.outputs) == 4
    assert all(outputs.is_first.all() for outputs in learner.outputs)


def test_absent_learner_is_an_error(tmp_path: Path) -> None:
    """The generator does not wait, since there is nothing to measure."""
    with pytest.raises(LearnerUnavailableError):
        load(f"unix:{tmp_path}/nobody.sock")


def test_refusal_is_passed_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command ends with the words of a learner of another environment."""
    address = f"unix:{tmp_path}/learner.sock"
    with serving(FakeLearner(refusal=IncompatibleError("this run's screen is wider")), address):
        assert main(["--learner", address]) == 1
    assert (
        "seed_bench.parts.simulated_actors: this run's screen is wider" in capsys.readouterr().err
    )


def test_command_says_when_measuring_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The caller can then measure the learner over the same time."""
    address = f"unix:{tmp_path}/learner.sock"
    with serving(FakeLearner(policy=lambda outputs: np.ones(2, np.int64)), address):
        flags = ["--envs-per-group", "2", "--seconds", "0.5", "--warm-up-steps", "1"]
        assert main(["--learner", address, *flags]) == 0
    begin, report = capsys.readouterr().out.splitlines()
    assert begin == "measuring"
    assert json.loads(report)["env_steps"] > 0


@pytest.mark.parametrize(
    ("field", "value"), [("num_streams", 0), ("step_us", -1), ("seconds", 0), ("warm_up_steps", -1)]
)
def test_settings_that_cannot_work_are_refused(field: str, value: float) -> None:
    """The error names the flag."""
    with pytest.raises(ConfigError, match=f"^{field}: expected"):
        GeneratorArgs(learner="unix:x", **{field: value})  # pyright: ignore[reportArgumentType]
