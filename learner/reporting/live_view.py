"""The terminal view of a run: progress, speed, learning and where time goes.

The reporting thread writes to it. A thread of the library rich redraws it once a second,
so that the clock moves. It fits 80 columns and is used only where stdout is a terminal.
"""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from learner.reporting.verdict import verdict

# A longer bar would show no more, and the legend beside it needs the room.
_TIME_BAR_WIDTH = 16
_SMALLEST_SHARE_IN_LEGEND = 0.02
_ACTIVITY_STYLES = ("green", "cyan", "yellow", "magenta", "blue", "red")
_IDLE_STYLE = "bright_black"
# "wait": the thread has nothing to do. "blocked": the next thread has no room for results.
_IDLE_ACTIVITIES = frozenset({"wait", "blocked"})

# The remaining time is computed from a smoothed speed, in which the newest has this weight.
_SPEED_SMOOTHING = 0.2
_LONGEST_ETA_S = 1000 * 86_400


class LiveView:
    """Shows the newest report. After `close` it stays on the screen."""

    def __init__(
        self,
        title: str,
        total_env_steps: int,
        *,
        console: Console | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Takes over the last lines of the terminal.

        Args:
          title: A few words on what runs: the run and its environment.
          total_env_steps: The run's budget. The bar is full when it is spent.
          console: Where to draw; standard output by default.
          now: The clock, in seconds.
        """
        self._title = title
        self._total_env_steps = total_env_steps
        self._now = now
        self._started_s = now()
        self._lock = threading.Lock()
        self._step = 0
        self._report: dict[str, float] = {}
        self._speed: float | None = None
        self._message = "waiting for actors"
        self._live = Live(
            console=console or Console(), get_renderable=self.render, refresh_per_second=1
        )
        self._live.start()

    def write(self, step: int, report: dict[str, float]) -> None:
        """Shows `report`, made at env step `step`. Of absent values the last ones stay."""
        with self._lock:
            self._step = step
            self._report |= report
            speed = report.get("env_steps_per_s")
            if speed is not None:
                last = speed if self._speed is None else self._speed
                self._speed = last + _SPEED_SMOOTHING * (speed - last)
        with _while_there_is_a_terminal():
            self._live.refresh()

    def show(self, message: str) -> None:
        """Replaces the message in the last line. The next redraw shows it."""
        with self._lock:
            self._message = message

    def log_handler(self) -> logging.Handler:
        """Returns a handler that shows the newest log record.

        Warnings, and records that are logged with `STAYS`, also stay above the view.
        """
        return _LiveViewHandler(self, self._live.console)

    def close(self) -> None:
        with _while_there_is_a_terminal():
            self._live.stop()

    def render(self) -> RenderableType:
        """Returns the whole view as of now."""
        with self._lock:
            step, speed, message = self._step, self._speed, self._message
            report = dict(self._report)
        elapsed = format_duration(self._now() - self._started_s)
        body = [_progress(step, self._total_env_steps, speed), Text(), _numbers(report)]
        time_table = _time_table(report)
        if time_table is not None:
            body += [Text(), time_table]
        limit = verdict(report)
        if limit is not None:
            body += [Text(), Text(limit)]
        body += [Text(), Text(message, style="dim", no_wrap=True, overflow="ellipsis")]
        title = Text(self._title, style="bold", no_wrap=True, overflow="ellipsis")
        return Panel(
            Group(*body),
            title=title,
            title_align="left",
            subtitle=elapsed,
            subtitle_align="right",
            border_style="bright_black",
            padding=(0, 1),
        )


# `_LOG.info(..., extra=STAYS)`: the line also stays above the view, as warnings do.
STAYS = {"stays": True}


class _LiveViewHandler(logging.Handler):
    def __init__(self, view: LiveView, console: Console) -> None:
        super().__init__()
        self._view = view
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        self._view.show(text.splitlines()[0] if text else "")
        is_warning = record.levelno >= logging.WARNING
        if is_warning or getattr(record, "stays", False):
            with _while_there_is_a_terminal():
                self._console.print(Text(text, style="yellow" if is_warning else "dim"))


def _while_there_is_a_terminal() -> contextlib.AbstractContextManager[None]:
    """The user may close the terminal; the run then saves, and ends like after Ctrl-C."""
    return contextlib.suppress(OSError)


def format_duration(seconds: float) -> str:
    """Returns hours, minutes and seconds as "1:02:03"; from one day on "2d 01:02"."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 24:
        return f"{hours // 24}d {hours % 24:02}:{minutes:02}"
    return f"{hours}:{minutes:02}:{seconds:02}"


def format_count(count: float) -> str:
    """Returns "9,500", "61.4k", "1.24M": at most five characters below a trillion."""
    if round(count) < 10_000:
        return f"{count:,.0f}"
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        # A number that rounds up to one unit is written in that unit: 999,950 is 1M.
        if count >= size * 0.9995:
            return (
                f"{count / size:.3g}{unit}" if count < 100 * size else f"{count / size:.0f}{unit}"
            )
    raise AssertionError("no count of 10,000 or more is below the smallest unit")


def _progress(step: int, total: int, speed: float | None) -> Table:
    # While actors are away the smoothed speed falls towards 0, and the time left means nothing.
    left_s = max(total - step, 0) / speed if speed else math.inf
    eta = format_duration(left_s) if left_s < _LONGEST_ETA_S else "--"
    grid = Table.grid(padding=(0, 2), expand=True)
    grid.add_column(ratio=1)
    grid.add_column(justify="right", no_wrap=True)
    done = min(step / total, 1.0)
    grid.add_row(
        ProgressBar(total=total, completed=min(step, total)),
        f"[bold]{done:.1%}[/]  {format_count(step)} of {format_count(total)}  ETA {eta}",
    )
    return grid


def _numbers(report: dict[str, float]) -> Table:
    """Returns two columns of labels and values. A value not reported yet is a dash.

    A row on evaluation games is there once such a game has ended.
    """

    def value(name: str, template: str) -> str:
        return template.format(report[name]) if name in report else "-"

    def count(name: str) -> str:
        return format_count(report[name]) if name in report else "-"

    lag = f"{value('policy/lag_mean', '{:.1f}')} max {value('policy/lag_max', '{:.0f}')}"
    latency = "{} p99 {}".format(
        value("inference/latency_ms_p50", "{:.1f}"), value("inference/latency_ms_p99", "{:.0f}")
    )
    returns = value("episode/return_mean_100", "{:.2f}")
    if "replay/sequences" in report:
        waiting = ("replay", f"{count('replay/sequences')} sequences")
    else:
        waiting = ("queue", f"{count('queue/unrolls')} unrolls")
    rows = [
        ("return", f"[bold]{returns}[/]", "env steps/s", f"[bold]{count('env_steps_per_s')}[/]"),
        ("episodes", count("episodes"), "updates", count("learner_steps")),
        ("episode length", value("episode/length_mean", "{:.0f}"), "policy lag", lag),
        (
            "actors",
            count("actors/connected"),
            "batch fill",
            value("inference/fill_ratio", "{:.0%}"),
        ),
        ("envs", count("envs/connected"), "latency ms", latency),
        (*waiting, "batch", _batch_size(report)),
    ]
    if "eval/return_mean" in report:
        length = value("eval/length_mean", "{:.0f}")
        rows.insert(1, ("eval return", value("eval/return_mean", "{:.2f}"), "eval length", length))
    grid = Table.grid(padding=(0, 2), expand=True)
    for _ in range(2):
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(justify="left", no_wrap=True, ratio=1)
    for row in rows:
        grid.add_row(*row)
    return grid


def _batch_size(report: dict[str, float]) -> str:
    size = report.get("inference/batch_size_mean")
    return "-" if size is None else f"{size:.1f} envs"


def _time_table(report: dict[str, float]) -> Table | None:
    """Returns a row for each thread: a stacked bar and the shares in it."""
    grid = Table.grid(padding=(0, 2), expand=True)
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(no_wrap=True, width=_TIME_BAR_WIDTH)
    grid.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    threads = _shares_by_thread(report)
    for thread, shares in threads.items():
        grid.add_row(thread, *_stacked_bar(shares))
    return grid if threads else None


def _shares_by_thread(report: dict[str, float]) -> dict[str, dict[str, float]]:
    threads: dict[str, dict[str, float]] = {}
    for name, share in report.items():
        if name.startswith("time/") and name.endswith("_share"):
            thread, activity = name.removeprefix("time/").removesuffix("_share").split("_", 1)
            threads.setdefault(thread, {})[activity] = share
    return threads


def _stacked_bar(shares: dict[str, float]) -> tuple[Text, Text]:
    """Returns the bar and its legend. Time spent waiting is grey and comes last."""
    work = [activity for activity in shares if activity not in _IDLE_ACTIVITIES]
    styles = {a: _ACTIVITY_STYLES[i % len(_ACTIVITY_STYLES)] for i, a in enumerate(work)}
    bar, legend = Text(), Text()
    filled, total = 0, 0.0
    for activity in sorted(shares, key=lambda a: (a in _IDLE_ACTIVITIES, -shares[a])):
        share, style = shares[activity], styles.get(activity, _IDLE_STYLE)
        total += share
        end = round(total * _TIME_BAR_WIDTH)
        bar.append(("░" if activity in _IDLE_ACTIVITIES else "█") * (end - filled), style)
        filled = end
        if share >= _SMALLEST_SHARE_IN_LEGEND:
            legend.append(f"{activity} {share:.0%}  ", style)
    return bar, legend
