"""Sinks: how reports look as JSON lines, as events and on the terminal."""

import io
import json
import logging
import math
from pathlib import Path

import pytest
from rich.console import Console

from learner.reporting.live_view import LiveView
from learner.reporting.sinks import JsonlSink, LogSink, Sink
from learner.reporting.tensorboard import TensorBoardSink
from tests.learner.reporting.reports import REPORT


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


def test_budget_that_was_overshot_is_done_and_not_more(caplog: pytest.LogCaptureFixture) -> None:
    """Steps that were on their way still count: 1,728 of 1 were once 172800.0%."""
    with caplog.at_level(logging.INFO):
        LogSink(1).write(1_728, {})
    assert caplog.messages == ["1,728 of 1 env steps (100.0%)"]


def test_log_says_what_limits_the_run_when_that_changes(caplog: pytest.LogCaptureFixture) -> None:
    """The verdict is not in every report, as its numbers vary."""
    sink = LogSink(100)
    waits = [(0.02, 0.5), (0.04, 0.4), (0.6, 0.5)]
    with caplog.at_level(logging.INFO):
        for trainer, acting in waits:
            shares = {"time/trainer_wait_share": trainer, "time/inference_wait_share": acting}
            sink.write(1, shares | {"policy/lag_mean": 1.0, "envs/connected": 8.0})
    told = [message for message in caplog.messages if "-bound: " in message]
    assert [message.partition(":")[0] for message in told] == [
        "training-bound",
        "environment-bound",
    ]


def test_sinks_have_the_same_two_methods(tmp_path: Path) -> None:
    """Each of them can be used as a Sink."""
    screen = Console(file=io.StringIO(), force_terminal=True, width=80)
    sinks: list[Sink] = [
        JsonlSink(tmp_path / "x.jsonl"),
        TensorBoardSink(tmp_path),
        LogSink(1),
        LiveView("runs/pong", 1, console=screen),
    ]
    for sink in sinks:
        sink.write(1, {"x": 1.0})
        sink.close()
