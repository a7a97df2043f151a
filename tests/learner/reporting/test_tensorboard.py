"""TensorBoard's files: curves, the first page, the config, and hyperparameters."""

import math
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams import metadata

from learner.config.presets import PRESETS
from learner.reporting.metric_table import is_known, metric_of
from learner.reporting.tensorboard import FIRST_CURVES, TensorBoardSink, hyperparameters
from tests.learner.reporting.reports import REPORT

CONFIG = PRESETS["cartpole-vtrace"].config


def events_in(directory: Path) -> EventAccumulator:
    """Returns the reader of the event files."""
    return EventAccumulator(str(directory)).Reload()


def test_tensorboard_has_env_steps_as_its_axis(tmp_path: Path) -> None:
    """A report reads back from the event files under its flat names."""
    sink = TensorBoardSink(tmp_path)
    sink.write(10, {"loss/value": 0.5})
    sink.write(20, {"loss/value": 0.25})
    sink.close()
    events = events_in(tmp_path)
    assert [(e.step, e.value) for e in events.Scalars("loss/value")] == [(10, 0.5), (20, 0.25)]


def test_tensorboard_shows_meaning_and_unit(tmp_path: Path) -> None:
    """The words of the table stand beside each curve, once for each curve."""
    sink = TensorBoardSink(tmp_path)
    for step in (10, 20):
        sink.write(step, {"loss/value": 0.5, "policy/lag_max": 2.0})
    sink.close()
    events = events_in(tmp_path)
    for name in ("loss/value", "policy/lag_max"):
        assert events.SummaryMetadata(name).summary_description == metric_of(name).help


def test_tensorboard_forgets_what_is_beyond_the_resumed_step(tmp_path: Path) -> None:
    """Steps that are repeated after a kill do not show twice."""
    first = TensorBoardSink(tmp_path)
    for step in (10, 20, 30):
        first.write(step, {"x": 1.0})
    first.close()
    second = TensorBoardSink(tmp_path, resumed_at=20)
    second.write(25, {"x": 2.0})
    second.close()
    events = events_in(tmp_path)
    assert [(e.step, e.value) for e in events.Scalars("x")] == [(10, 1.0), (25, 2.0)]


def test_returns_come_first(tmp_path: Path) -> None:
    """TensorBoard's first page shows groups of curves by name; all old names stay."""
    sink = TensorBoardSink(tmp_path)
    returns = {name: float(number) for number, name in enumerate(FIRST_CURVES)}
    sink.write(10, REPORT | returns)
    sink.close()
    events = events_in(tmp_path)
    tags = sorted(events.Tags()["scalars"])
    assert {tag.partition("/")[0] for tag in tags[: len(FIRST_CURVES)]} == {"1_returns"}
    assert not (REPORT | returns).keys() - set(tags)
    for name, tag in FIRST_CURVES.items():
        assert [(e.step, e.value) for e in events.Scalars(tag)] == [(10, returns[name])]
        assert events.SummaryMetadata(tag).summary_description == metric_of(name).help


def test_overview_shows_metrics_that_there_are(tmp_path: Path) -> None:
    """A tag that is misspelt would be an empty chart."""
    TensorBoardSink(tmp_path).close()
    (event,) = events_in(tmp_path).Tensors("custom_scalars__config__")
    layout = layout_pb2.Layout.FromString(  # pyright: ignore[reportAttributeAccessIssue]
        event.tensor_proto.string_val[0]
    )
    charts = [chart for category in layout.category for chart in category.chart]
    tags = [tag for chart in charts for tag in chart.multiline.tag]
    for chart in charts:
        for series in chart.margin.series:
            tags += [series.value, series.lower, series.upper]
    assert "episode/return_min" in tags
    assert all(map(is_known, tags))


def test_config_is_shown_as_text(tmp_path: Path) -> None:
    """It is a block of code, so that its lines stay lines; a resume shows its own."""
    TensorBoardSink(tmp_path, config=CONFIG).close()
    TensorBoardSink(tmp_path, resumed_at=20, config=CONFIG).close()
    texts = events_in(tmp_path).Tensors("config/text_summary")
    assert [event.step for event in texts] == [0, 20]
    text = texts[0].tensor_proto.string_val[0].decode()
    assert "    agent:\n      algorithm: vtrace\n" in text
    assert all(line.startswith("    ") for line in text.splitlines())


def test_hyperparameters_are_those_of_the_config(tmp_path: Path) -> None:
    """The page compares runs by the last values of curves that every run has."""
    sink = TensorBoardSink(tmp_path, config=CONFIG)
    sink.write(10, REPORT | {"env_steps": 10.0, "wall_s": 2.0})
    contents = events_in(tmp_path).PluginTagToContent("hparams")
    assert metadata.SESSION_END_INFO_TAG not in contents
    sink.close()
    contents = events_in(tmp_path).PluginTagToContent("hparams")
    start = metadata.parse_session_start_info_plugin_data(contents[metadata.SESSION_START_INFO_TAG])
    assert start.hparams["agent.batch_size"].number_value == 16
    assert start.hparams["network.torso"].string_value == "mlp"
    experiment = metadata.parse_experiment_plugin_data(contents[metadata.EXPERIMENT_TAG])
    names = [info.name.tag for info in experiment.metric_infos]
    assert names[0] == "episode/return_mean_100"
    assert all(map(is_known, names))
    assert metadata.SESSION_END_INFO_TAG in contents


@pytest.mark.parametrize("preset", PRESETS)
def test_hyperparameters_are_numbers_and_texts(preset: str) -> None:
    """The page cannot show lists, and infinities or None would mix types in a column."""
    flat = hyperparameters(PRESETS[preset].config)
    assert len(flat) > 60
    assert all(isinstance(value, str | int) or math.isfinite(value) for value in flat.values())
    assert flat["env.atari.screen_size"] == 84
    assert flat["network.hidden_sizes"] in ("64 64", "64")
    if preset == "cartpole-vtrace":
        assert not {"agent.reward_clip_min", "agent.entropy_target"} & set(flat)
