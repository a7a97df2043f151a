"""Where reports go: a JSON Lines file, TensorBoard, the log.

Called by the one thread that reports. The terminal's sink is `live_view.py`.
"""

import json
import logging
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from torch.utils.tensorboard.writer import SummaryWriter

from learner.reporting.verdict import verdict

_LOG = logging.getLogger(__name__)


class Sink(Protocol):
    """Takes reports of `Metrics.drain`."""

    def write(self, step: int, report: dict[str, float]) -> None:
        """Records `report`, made at env step `step`."""
        ...

    def close(self) -> None:
        """Lets go of files and terminal; no `write` follows."""
        ...


class JsonlSink:
    """One JSON object a line and a report, flushed, so that a kill costs no report.

    A value that is not finite is written as null: NaN is no JSON, and leaving it
    out would hide a loss that diverged.
    """

    def __init__(self, path: Path) -> None:
        """Opens `path` to append; what a killed run left of an unfinished line is cut off."""
        _cut_unfinished_line(path)
        self._file = path.open("a", encoding="utf-8")

    def write(self, step: int, report: dict[str, float]) -> None:
        finite = {name: value if math.isfinite(value) else None for name, value in report.items()}
        self._file.write(json.dumps({"env_steps": step} | finite, allow_nan=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class TensorBoardSink:
    """TensorBoard event files; the horizontal axis is env steps."""

    def __init__(self, directory: Path, *, resumed_at: int | None = None) -> None:
        """Opens a new event file in `directory`.

        Args:
          directory: Where the run's event files are.
          resumed_at: Env steps of the checkpoint that the run resumes; TensorBoard
            forgets what an earlier process reported beyond it.
        """
        self._writer = SummaryWriter(os.fspath(directory), purge_step=resumed_at)

    def write(self, step: int, report: dict[str, float]) -> None:
        for name, value in report.items():
            self._writer.add_scalar(name, value, global_step=step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class SteadySink:
    """Lets a run outlive the files of another sink: a full disk may be emptied.

    What could not be written is lost, or comes later; it is said once, not every report.
    """

    def __init__(self, sink: Sink) -> None:
        """Takes over `sink`."""
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
    """One readable line a report, for runs without a terminal; what limits it when that changes."""

    def __init__(self, total_env_steps: int) -> None:
        """Reports progress towards `total_env_steps`."""
        self._total_env_steps = total_env_steps
        self._limit = ""

    def write(self, step: int, report: dict[str, float]) -> None:
        _LOG.info("%s", format_report(step, self._total_env_steps, report))
        told = verdict(report)
        if told is not None and (limit := told.partition(":")[0]) != self._limit:
            self._limit = limit
            _LOG.info("%s", told)

    def close(self) -> None:
        """Nothing to let go of."""


def format_report(step: int, total_env_steps: int, report: dict[str, float]) -> str:
    """Returns the report as one line; what it does not hold is left out."""
    parts = [f"{step:,} of {total_env_steps:,} env steps ({step / total_env_steps:.1%})"]
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
    """Truncates `path` behind its last newline; lines before it stay untouched."""
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
