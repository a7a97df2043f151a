"""Where reports go: a JSON Lines file, the log.

The thread that reports calls them. The terminal's sink is in `live_view.py`, TensorBoard's in
`tensorboard.py`, Prometheus's in `prometheus.py`.
"""

import json
import logging
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from learner.reporting.verdict import verdict

_LOG = logging.getLogger(__name__)


class Sink(Protocol):
    """Takes reports of `Metrics.drain`."""

    def write(self, step: int, report: dict[str, float]) -> None:
        """Records `report`, made at env step `step`."""
        ...

    def close(self) -> None:
        """Closes files and releases the terminal. No `write` follows."""
        ...


class JsonlSink:
    """Writes each report as one line, a JSON object, and flushes it: a kill costs no report.

    A value that is not finite is written as null. JSON has no NaN, and to leave the value out
    would hide a loss that diverged.
    """

    def __init__(self, path: Path) -> None:
        """Opens `path` to append. An unfinished last line, which a kill may leave, is cut off."""
        _cut_unfinished_line(path)
        self._file = path.open("a", encoding="utf-8")

    def write(self, step: int, report: dict[str, float]) -> None:
        finite = {name: value if math.isfinite(value) else None for name, value in report.items()}
        self._file.write(json.dumps({"env_steps": step} | finite, allow_nan=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class SteadySink:
    """Keeps a run alive when another sink cannot write, for example because a disk is full.

    A report that cannot be written is lost. The first failure in a row is logged, the
    others are not.
    """

    def __init__(self, sink: Sink) -> None:
        """Writes to `sink`, and closes it."""
        self._sink = sink
        self._is_failing = False

    def write(self, step: int, report: dict[str, float]) -> None:
        self._try(lambda: self._sink.write(step, report))

    def close(self) -> None:
        self._try(self._sink.close)

    def _try(self, call: Callable[[], None]) -> None:
        try:
            call()
        except OSError as error:
            if not self._is_failing:
                _LOG.error("%s cannot be written: %s", type(self._sink).__name__, error)
            self._is_failing = True
        else:
            self._is_failing = False


class LogSink:
    """Logs each report as one readable line, for runs without a terminal.

    When the run's speed begins to be limited by another part, a second line says so.
    """

    def __init__(self, total_env_steps: int, *, num_learners: int = 1) -> None:
        """Reports progress of `num_learners` that train together towards `total_env_steps`."""
        self._total_env_steps = total_env_steps
        self._num_learners = num_learners
        self._limit = ""

    def write(self, step: int, report: dict[str, float]) -> None:
        _LOG.info("%s", format_report(step, self._total_env_steps, report))
        told = verdict(report, num_learners=self._num_learners)
        if told is not None and (limit := told.partition(":")[0]) != self._limit:
            self._limit = limit
            _LOG.info("%s", told)

    def close(self) -> None:
        """Does nothing: the log stays open."""


def format_report(step: int, total_env_steps: int, report: dict[str, float]) -> str:
    """Returns the report as one line. Values that it does not hold are left out."""
    # Steps that were on their way when the budget was spent still count.
    done = min(step / total_env_steps, 1.0)
    parts = [f"{step:,} of {total_env_steps:,} env steps ({done:.1%})"]
    for name, template in (
        ("env_steps_per_s", "{:,.0f}/s"),
        ("episode/return_mean_100", "return {:.2f}"),
        ("eval/return_mean", "eval {:.2f}"),
        ("episodes", "{:,.0f} episodes"),
        ("learner_steps", "{:,.0f} updates"),
        ("policy/lag_mean", "lag {:.2f}"),
        ("replay/sequences", "{:,.0f} sequences"),
        ("inference/fill_ratio", "fill {:.0%}"),
        ("actors/connected", "{:.0f} actors"),
        ("envs/connected", "{:.0f} envs"),
    ):
        if name in report:
            parts.append(template.format(report[name]))
    return ", ".join(parts)


def _cut_unfinished_line(path: Path) -> None:
    """Truncates `path` after its last newline."""
    if not path.exists():
        return
    with path.open("rb+") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - 65_536)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                file.truncate(start + newline + 1)
                return
            end = start
        file.truncate(0)
