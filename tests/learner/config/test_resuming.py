"""Whether a command that resumes a run means the run in its directory."""

import dataclasses
from pathlib import Path

import pytest

from learner.config.config_file import dump_config
from learner.config.presets import PRESETS
from learner.config.resuming import NO_PRESET, RunToResume, run_to_resume
from learner.config.run_dir import RunDir
from seed.errors import ConfigError

CONFIG = PRESETS["cartpole-vtrace"].config


def make_run(path: Path, name: str) -> RunToResume:
    """Returns a run of `name` whose metrics count env steps."""
    run_dir = RunDir(path)
    dump_config(CONFIG, run_dir.config, name=name)
    run_dir.metrics.write_text('{"env_steps": 1}\n')
    run = run_to_resume(run_dir)
    assert run is not None
    return run


@pytest.mark.parametrize("own", ["cartpole-vtrace", "my_presets:SLOW", "of-another-package"])
def test_another_preset_is_refused_with_the_way_out(tmp_path: Path, own: str) -> None:
    """The run's own preset is accepted, with the run's own config."""
    run = make_run(tmp_path, own)
    assert run.config_for(own, None) == CONFIG
    with pytest.raises(ConfigError) as caught:
        run.config_for("memory-r2d2", None)
    assert str(caught.value) == (
        f"preset: expected {own!r}, the preset of the run in {tmp_path}, got 'memory-r2d2'; "
        "another --run-dir starts a new run"
    )


def test_run_without_a_preset_is_resumed_by_any(tmp_path: Path) -> None:
    """The command line must name one, and a run of `seed.train` has none."""
    assert make_run(tmp_path, NO_PRESET).config_for("memory-r2d2", None) == CONFIG


def test_run_whose_file_names_no_preset_is_resumed_by_any(tmp_path: Path) -> None:
    """A user has removed what no program reads."""
    make_run(tmp_path, "x")
    text = (tmp_path / "config.yaml").read_text()
    (tmp_path / "config.yaml").write_text(text[: text.index("provenance:")])
    assert RunToResume(RunDir(tmp_path)).config_for("memory-r2d2", None) == CONFIG


@pytest.mark.parametrize("field", ["agent", "env_id"])
def test_config_of_another_run_is_refused(tmp_path: Path, field: str) -> None:
    """So that Pong's weights do not go on with Breakout. Other settings may change."""
    run = make_run(tmp_path, "cartpole-vtrace")
    run.check(dataclasses.replace(CONFIG, rng_seed=5))
    other = dataclasses.replace(
        CONFIG,
        agent=PRESETS["memory-r2d2"].config.agent if field == "agent" else CONFIG.agent,
        env=dataclasses.replace(CONFIG.env, env_id="X-v0") if field == "env_id" else CONFIG.env,
        learner=PRESETS["memory-r2d2"].config.learner,
    )
    with pytest.raises(ConfigError, match=f"^{field}: expected .* of the run in "):
        run.check(other)


def test_start_that_failed_is_no_run_to_resume(tmp_path: Path) -> None:
    """Its config is not taken over, because what made it fail may be in there."""
    dump_config(CONFIG, tmp_path / "config.yaml", name="cartpole-vtrace")
    assert run_to_resume(RunDir(tmp_path)) is None


def test_run_that_lost_its_config_starts_from_the_flags(tmp_path: Path) -> None:
    """A kill may come before it is written."""
    (tmp_path / "checkpoints").mkdir()
    assert run_to_resume(RunDir(tmp_path)) is None
