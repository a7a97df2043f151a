"""The terminal view of a run: what it shows, that it fits, and how it shortens numbers."""

import errno
import io
import logging
from collections.abc import Callable

import pytest
from rich.console import Console

from learner.reporting.live_view import STAYS, LiveView, format_count, format_duration
from tests.learner.reporting.reports import REPORT


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


def test_live_view_of_an_overshot_budget_is_at_its_end() -> None:
    """There is no more than 100%, and no time left."""
    view, seen = make_view()
    view.write(3_456_000, REPORT)
    view.close()
    assert "100.0%  3.46M of 3M  ETA 0:00:00" in seen()


@pytest.mark.parametrize("speed", [0.0, 1e-9])
def test_live_view_tells_no_time_left_while_nothing_moves(speed: float) -> None:
    """3 million steps at a billionth a second are no "34722222d 05:20"."""
    view, seen = make_view()
    view.write(10, {"env_steps_per_s": speed})
    view.close()
    assert "ETA --" in seen()


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


def test_lines_that_are_logged_to_stay_are_above_the_view() -> None:
    """A user reads them once the run goes on, and the message shows something newer."""
    file = io.StringIO()
    view = LiveView("x", 10, console=Console(file=file, force_terminal=True), now=lambda: 0.0)
    logger = logging.Logger("seed")
    logger.addHandler(view.log_handler())
    logger.info("image 84 x 84", extra=STAYS)
    logger.info("listening")
    view.close()
    assert "image 84 x 84" in file.getvalue()


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


def test_closed_terminal_does_not_end_the_run() -> None:
    """Drawing, warnings and the end of the view raise nothing, so that the run can save."""
    terminal = ClosableTerminal()
    view = LiveView("x", 100, console=Console(file=terminal, force_terminal=True, width=80))
    handler = view.log_handler()
    terminal.is_open = False
    view.write(1, {})
    handler.emit(logging.makeLogRecord({"msg": "careful", "levelno": logging.WARNING}))
    view.close()


class ClosableTerminal(io.StringIO):
    """A terminal whose window the user closes."""

    is_open = True

    def write(self, text: str) -> int:
        if not self.is_open:
            raise OSError(errno.EIO, "Input/output error")
        return super().write(text)
