"""Sinks: how reports look as JSON lines, as events and on the terminal."""

import io
import json
import logging
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from learner.reporting.live_view import LiveView, format_count, format_duration
from learner.reporting.metric_table import metric_of
from learner.reporting.sinks import JsonlSink, LogSink, Sink, TensorBoardSink

REPORT = {
    "env_steps_per_s": 960.0,
    "episode/return_mean_100": -12.5,
    "episodes": 214,
    "learner_steps": 3875.0,
    "policy/lag_mean": 1.25,
    "policy/lag_max": 3.0,
    "inference/fill_ratio": 0.93,
    "inference/latency_ms_p50": 12.4,
    "inference/latency_ms_p99": 38.2,
    "actors/connected": 2.0,
    "envs/connected": 64.0,
    "queue/unrolls": 16.0,
    "time/trainer_backward_share": 0.45,
    "time/trainer_forward_share": 0.2,
    "time/trainer_wait_share": 0.35,
}


def lines_of(path: Path) -> list[dict[str, float | None]]:
    """Returns the objects in a JSON Lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_jsonl_line_is_there_before_close(tmp_path: Path) -> None:
    """A kill after a report does not lose it."""
    path = tmp_path / "metrics.jsonl"
    sink = JsonlSink(path)
    sink.write(10, {"loss/value": 0.5})
    assert lines_of(path) == [{"env_steps": 10, "loss/value": 0.5}]
    sink.close()


def test_jsonl_has_null_where_a_value_is_not_finite(tmp_path: Path) -> None:
    """Every line stays valid JSON, and a loss that diverged stays visible."""
    path = tmp_path / "metrics.jsonl"
    sink = JsonlSink(path)
    sink.write(10, {"a": math.nan, "b": math.inf, "c": 1.0})
    sink.close()
    assert lines_of(path) == [{"env_steps": 10, "a": None, "b": None, "c": 1.0}]


@pytest.mark.parametrize("tail", ["", '{"env_steps": 20, "lo', '{"x": "' + "y" * 70_000])
def test_jsonl_goes_on_behind_the_last_whole_line(tmp_path: Path, tail: str) -> None:
    """An unfinished line of a killed process is cut off, and earlier lines stay."""
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"env_steps": 10}\n' + tail, encoding="utf-8")
    sink = JsonlSink(path)
    sink.write(30, {})
    sink.close()
    assert lines_of(path) == [{"env_steps": 10}, {"env_steps": 30}]


def test_jsonl_cuts_a_file_that_is_one_unfinished_line(tmp_path: Path) -> None:
    """The first report was never complete."""
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"env_', encoding="utf-8")
    JsonlSink(path).close()
    assert path.read_bytes() == b""


def test_tensorboard_has_env_steps_as_its_axis(tmp_path: Path) -> None:
    """A report reads back from the event files under its flat names."""
    sink = TensorBoardSink(tmp_path)
    sink.write(10, {"loss/value": 0.5})
    sink.write(20, {"loss/value": 0.25})
    sink.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [(e.step, e.value) for e in events.Scalars("loss/value")] == [(10, 0.5), (20, 0.25)]


def test_tensorboard_shows_meaning_and_unit(tmp_path: Path) -> None:
    """The words of the table stand beside each curve, once for each curve."""
    sink = TensorBoardSink(tmp_path)
    for step in (10, 20):
        sink.write(step, {"loss/value": 0.5, "policy/lag_max": 2.0})
    sink.close()
    events = EventAccumulator(str(tmp_path)).Reload()
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
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [(e.step, e.value) for e in events.Scalars("x")] == [(10, 1.0), (25, 2.0)]


def test_log_line_is_readable_and_holds_what_was_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Absent values leave no gap."""
    with caplog.at_level(logging.INFO):
        LogSink(3_000_000).write(1_240_000, REPORT)
        LogSink(3_000_000).write(0, {})
    assert caplog.messages == [
        "1,240,000 of 3,000,000 env steps (41.3%), 960/s, return -12.50, 214 episodes, "
        "3,875 updates, lag 1.25, fill 93%, 2 actors, 64 envs",
        "0 of 3,000,000 env steps (0.0%)",
    ]


def test_log_says_what_limits_the_run_when_that_changes(caplog: pytest.LogCaptureFixture) -> None:
    """The verdict is not in every report, as its numbers vary."""
    sink = LogSink(100)
    waits = [(0.02, 0.5), (0.04, 0.4), (0.6, 0.5)]
    with caplog.at_level(logging.INFO):
        for trainer, acting in waits:
            shares = {"time/trainer_wait_share": trainer, "time/inference_wait_share": acting}
            sink.write(1, shares | {"policy/lag_mean": 1.0})
    told = [message for message in caplog.messages if "-bound: " in message]
    assert [message.partition(":")[0] for message in told] == [
        "training-bound",
        "environment-bound",
    ]


def make_view(width: int = 80) -> tuple[LiveView, Callable[[], str]]:
    """Returns a view on a terminal of `width` columns, and a function that returns its text."""
    screen = Console(file=io.StringIO(), force_terminal=True, width=width)
    view = LiveView("runs/pong", 3_000_000, console=screen, now=lambda: 0.0)

    def seen() -> str:
        paper = Console(file=io.StringIO(), width=width, color_system=None)
        with paper.capture() as capture:
            paper.print(view.render())
        return capture.get()

    return view, seen


def test_live_view_shows_the_report() -> None:
    """Progress, remaining time, learning, load and threads are on the screen."""
    view, seen = make_view()
    view.write(1_240_000, REPORT)
    view.show("checkpoint 3800 written")
    view.close()
    text = seen()
    for part in (
        "runs/pong",
        "41.3%  1.24M of 3M  ETA 0:30:33",
        "-12.50",
        "960",
        "214",
        "1.2 max 3",
        "93%",
        "12.4 p99 38",
        "16 unrolls",
        "██████████░░░░░░" + "  backward 45%  forward 20%  wait 35%",
        "checkpoint 3800 written",
    ):
        assert part in text


@pytest.mark.parametrize("width", [60, 80, 200])
def test_live_view_fits_the_terminal_before_and_after_the_first_report(width: int) -> None:
    """No line wraps, so a redraw never scrolls."""
    view, seen = make_view(width)
    empty = seen()
    view.write(1, REPORT)
    view.close()
    for text in (empty, seen()):
        assert {len(line) for line in text.splitlines()} == {width}
    # The rows of threads add at most five lines.
    assert len(seen().splitlines()) <= len(empty.splitlines()) + 5


def test_live_view_keeps_values_that_a_report_leaves_out() -> None:
    """A window without a finished episode keeps the last return."""
    view, seen = make_view()
    view.write(1, REPORT)
    view.write(2, {"env_steps_per_s": 960.0})
    view.close()
    assert "-12.50" in seen()


def test_live_view_shows_evaluation_games_once_there_are_any() -> None:
    """They have a row of their own, which runs without evaluation actors lack."""
    view, seen = make_view(60)
    view.write(1, REPORT)
    assert "eval" not in seen()
    view.write(2, {"eval/return_mean": 17.25, "eval/length_mean": 3412.0})
    view.write(3, REPORT)
    view.close()
    (row,) = (line for line in seen().splitlines() if "eval" in line)
    assert row.strip("│ ").split() == ["eval", "return", "17.25", "eval", "length", "3412"]


def test_live_view_shows_log_records_and_leaves_warnings_above() -> None:
    """A new message replaces the last one; a warning scrolls up and stays."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=80)
    view = LiveView("x", 10, console=console, now=lambda: 0.0)
    handler = view.log_handler()
    for level, text in ((logging.INFO, "actor joined"), (logging.WARNING, "actor lost")):
        handler.emit(logging.LogRecord("seed", level, __file__, 1, text, None, None))
    view.close()
    assert file.getvalue().count("actor joined") == 0
    assert file.getvalue().count("actor lost") >= 2


def test_sinks_have_the_same_two_methods(tmp_path: Path) -> None:
    """Each of them can be used as a Sink."""
    view, _ = make_view()
    sinks: list[Sink] = [
        JsonlSink(tmp_path / "x.jsonl"),
        TensorBoardSink(tmp_path),
        LogSink(1),
        view,
    ]
    for sink in sinks:
        sink.write(1, {"x": 1.0})
        sink.close()


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (9999.4, "9,999"),
        (9999.6, "10k"),
        (61_440, "61.4k"),
        (123_456, "123k"),
        (999_949, "1M"),
        (1_240_000, "1.24M"),
        (50_000_000, "50M"),
        (2.5e9, "2.5B"),
    ],
)
def test_counts_are_short(count: float, text: str) -> None:
    """Three digits are enough for a reader."""
    assert format_count(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00:00"), (3723.9, "1:02:03"), (180_000, "2d 02:00")]
)
def test_durations_are_readable(seconds: float, text: str) -> None:
    """Days show from one day on."""
    assert format_duration(seconds) == text
