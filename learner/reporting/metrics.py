"""What a run measures: all threads add values, and `drain` makes a report of them.

The server, inference and trainer threads add values a few times a batch, so each such
call only takes a lock and does arithmetic. The reporting thread calls `drain`, which does
the costly parts. `metric_table.py` lists the metrics; `sinks.py` writes the reports.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable

import numpy as np

from learner.reporting.merging import Weighted, largest, smallest


class ThreadClock:
    """Measures how one thread spends its time. Only that thread calls `switch`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._activity: str | None = None
        self._since_s = 0.0
        self._seconds: dict[str, float] = {}

    def switch(self, activity: str) -> None:
        """Says that the thread does `activity` until the next call."""
        with self._lock:
            self._charge()
            self._activity = activity
            # The activity is known from here on: a window without it reports 0.
            self._seconds.setdefault(activity, 0.0)

    def drain(self) -> dict[str, float]:
        """Returns activity -> share of the window in [0, 1], and begins a new window.

        The shares weigh as much as the window is long, in seconds.
        """
        with self._lock:
            self._charge()
            seconds = self._seconds
            self._seconds = dict.fromkeys(seconds, 0.0)
        total = sum(seconds.values())
        if not total:
            return {}
        return {activity: Weighted(spent / total, total) for activity, spent in seconds.items()}

    def _charge(self) -> None:
        now_s = self._now()
        if self._activity is not None:
            self._seconds[self._activity] += now_s - self._since_s
        self._since_s = now_s


class CpuClock:
    """How busy a thread is whose activities are not known."""

    def __init__(self, now: Callable[[], float], cpu_s: Callable[[], float]) -> None:
        """`cpu_s` returns the CPU seconds that the thread has used; it raises OSError once the
        thread has ended."""
        self._now = now
        self._cpu_s = cpu_s
        self._since_s, self._busy_s = now(), cpu_s()

    def drain(self) -> float | None:
        """Returns the share of the window that the thread was on a core, and begins a new window.

        None if the thread has ended or the window has no length. The share weighs as much as
        the window is long, in seconds.
        """
        try:
            now_s, busy_s = self._now(), self._cpu_s()
        except OSError:
            return None
        elapsed_s, spent_s = now_s - self._since_s, busy_s - self._busy_s
        self._since_s, self._busy_s = now_s, busy_s
        if elapsed_s <= 0:
            return None
        # The two clocks are not read at the same moment.
        return Weighted(min(max(spent_s / elapsed_s, 0.0), 1.0), elapsed_s)


def _this_threads_cpu_s() -> Callable[[], float]:
    clock_id = time.pthread_getcpuclockid(threading.get_ident())
    return lambda: time.clock_gettime(clock_id)


class Metrics:
    """Gathers values from any thread. `drain` closes the window and reports it.

    Means, minima, maxima, sums and percentiles cover one window; a window without values reports
    none. A gauge keeps its value until it is set again. The kind of a metric in the table
    says which method takes its values: `mean` MEAN, `min` MIN, `max` MAX, `sum` SUM, `gauge` LEVEL,
    `percentiles` MEDIAN and P99.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        """Starts the first window.

        Args:
          now: The clock, in seconds.
        """
        self._now = now
        self._lock = threading.Lock()
        self._gauges: dict[str, float] = {}
        self._clocks: dict[str, ThreadClock] = {}
        self._cpu_clocks: dict[str, list[CpuClock]] = {}
        self._open_window()

    def mean(self, name: str, value: float, weight: float = 1.0) -> None:
        """Adds `value` to the window's mean, in which it counts `weight` times."""
        with self._lock:
            self._weighted_sums[name] += value * weight
            self._weights[name] += weight

    def max(self, name: str, value: float) -> None:
        """Adds `value` to those of which the window's largest is reported; NaN is the largest."""
        with self._lock:
            self._maxima[name] = largest((value, self._maxima.get(name, value)))

    def min(self, name: str, value: float) -> None:
        """Adds `value` to those of which the window's smallest is reported; NaN is the smallest."""
        with self._lock:
            self._minima[name] = smallest((value, self._minima.get(name, value)))

    def sum(self, name: str, value: float) -> None:
        """Adds `value` to the window's total."""
        with self._lock:
            self._sums[name] += value

    def percentiles(self, name: str, values: np.ndarray) -> None:
        """Adds `values`, of any shape, to the window's `<name>_p50` and `<name>_p99`."""
        copy = np.array(values, np.float64).ravel()
        with self._lock:
            self._samples[name].append(copy)

    def gauge(self, name: str, value: float) -> None:
        """Sets the value that is reported until the next call."""
        with self._lock:
            self._gauges[name] = value

    def clock(self, thread_name: str) -> ThreadClock:
        """Returns the clock that reports `time/<thread_name>_<activity>_share`."""
        assert "_" not in thread_name, "the first underscore ends the thread's name"
        with self._lock:
            return self._clocks.setdefault(thread_name, ThreadClock(self._now))

    def watch_cpu(self, thread_name: str, cpu_s: Callable[[], float] | None = None) -> None:
        """Reports a thread's `time/<thread_name>_busy_share` from now on.

        Of several threads of one name, the share of the busiest one is reported.

        Args:
          thread_name: the thread's name in the metric.
          cpu_s: returns the CPU seconds that the thread has used; it raises OSError once the
            thread has ended. By default the calling thread is watched; on macOS, which does
            not report a thread's CPU time, nothing is watched then.
        """
        if cpu_s is None and not hasattr(time, "pthread_getcpuclockid"):
            return
        clock = CpuClock(self._now, cpu_s or _this_threads_cpu_s())
        with self._lock:
            self._cpu_clocks.setdefault(thread_name, []).append(clock)

    def drain(self) -> dict[str, float]:
        """Returns name -> value of the window, and begins a new window.

        Values are floats. A mean is a `Weighted` float, so that it can be merged with other
        learners' means.
        """
        with self._lock:
            weighted_sums, weights = self._weighted_sums, self._weights
            extremes, sums, samples = self._minima | self._maxima, self._sums, self._samples
            report = dict(self._gauges)
            clocks, cpu_clocks = dict(self._clocks), dict(self._cpu_clocks)
            self._open_window()
        report |= extremes | sums
        report = {name: float(value) for name, value in report.items()}
        report |= {
            name: Weighted(weighted_sums[name] / weight, weight)
            for name, weight in weights.items()
            if weight
        }
        report |= _percentiles_of(samples)
        for thread, clock in clocks.items():
            for activity, share in clock.drain().items():
                report[f"time/{thread}_{activity}_share"] = share
        for thread, each in cpu_clocks.items():
            shares = [share for clock in each if (share := clock.drain()) is not None]
            if shares:
                report[f"time/{thread}_busy_share"] = max(shares)
        return report

    def _open_window(self) -> None:
        self._weighted_sums: defaultdict[str, float] = defaultdict(float)
        self._weights: defaultdict[str, float] = defaultdict(float)
        self._minima: dict[str, float] = {}
        self._maxima: dict[str, float] = {}
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._samples: defaultdict[str, list[np.ndarray]] = defaultdict(list)


def _percentiles_of(samples: dict[str, list[np.ndarray]]) -> dict[str, float]:
    """Returns `<name>_p50`, which weighs as many values as there are, and `<name>_p99`."""
    report: dict[str, float] = {}
    for name, chunks in samples.items():
        values = np.concatenate(chunks)
        if values.size:
            median, p99 = np.percentile(values, (50, 99))
            report[f"{name}_p50"] = Weighted(median, values.size)
            report[f"{name}_p99"] = float(p99)
    return report
