"""What a run measures: gathered by every thread, drained once a report.

Called a few times a batch by the server, inference and trainer threads, so each
call takes one lock and does arithmetic; the costly parts wait for `drain`, which
the reporting thread calls. Where reports go is `learner/reporting/sinks.py`'s.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from fnmatch import fnmatchcase

import numpy as np

# Every name that a report may hold -> what it is and in which unit. "*" stands for
# any text. "window" is the time since the previous report.
METRICS: dict[str, str] = {
    "env_steps": "actions applied by training actors since the run began, resumes included",
    "env_frames": "emulator frames: env_steps times the environment's frames per step",
    "env_steps_per_s": "env steps per second over the window",
    "learner_steps": "optimiser updates since the run began, those left out as not finite included",
    "wall_s": "seconds of running since the run began, resumes included",
    "episodes": "full games ended since the run began",
    "episode/return_mean": "mean undiscounted raw return of the full games ended in the window",
    "episode/return_mean_100": "mean undiscounted raw return of the last 100 full games",
    "episode/length_mean": "mean env steps of the full games ended in the window",
    "eval/return_mean": "as episode/return_mean, of actors that act greedily",
    "eval/length_mean": "as episode/length_mean, of actors that act greedily",
    "policy/lag_mean": "learner steps between the weights that acted and those updated, mean",
    "policy/lag_max": "the same, largest in the window",
    "policy/max_abs_log_rho_at_zero_lag": "largest |log(pi/mu)| in nats over steps whose lag is 0; "
    "anything but rounding is a bug",
    "policy/log_rho_mean": "log(pi/mu) of the actions taken in nats, mean over valid steps",
    "policy/entropy_mean": "entropy of the target policy in nats, mean over valid steps",
    "policy/entropy_cost": "weight of the entropy bonus in the loss",
    "loss/total": "the loss as loss_reduction makes it, mean over updates",
    "loss/non_finite": "updates of the window left out because loss or gradient was not finite",
    "loss/*": "one term of the loss without its weight, mean over valid steps and updates; "
    "td_error_mean: |TD error|, rescaled by h; priority_mean: what replay is told",
    "policy/q_mean": "Q of the actions taken, rescaled by h, mean over sequences and updates",
    "policy/q_max": "the same of the best actions",
    "optimizer/learning_rate": "step size of the latest update",
    "optimizer/grad_norm_mean": "global gradient norm before clipping, mean over updates",
    "inference/batch_size_mean": "environments in a forward pass, mean",
    "inference/fill_ratio": "environments in a forward pass as a share of all connected, or of "
    "max_inference_batch if that is less, mean, [0, 1]",
    "inference/latency_ms_p50": "ms from a message's arrival to its answer, median",
    "inference/latency_ms_p99": "the same, 99th percentile",
    "queue/unrolls": "unrolls waiting for the trainer at the time of the report",
    "replay/sequences": "sequences held at the time of the report",
    "replay/gib": "memory that the sequences held take, GiB",
    "replay/samples_per_insert": "sequences sampled by each inserted since training began",
    "replay/priority_mean": "mean priority to the power of priority_exponent",
    "actors/connected": "actors connected at the time of the report",
    "envs/connected": "their environments",
    "actors/refused": "streams that the learner ended in the window, for what their actor sent or "
    "did not send, or for want of room; the log says why",
    "time/*_share": "<thread>_<activity>: share of the window that the thread spent so, [0, 1]; "
    "busy: on a core, whatever it did; of several servers the busiest",
}

# Of these, which only ever grow while a run goes on without a restart.
TOTALS = frozenset({"env_steps", "env_frames", "learner_steps", "wall_s", "episodes"})


def is_known(name: str) -> bool:
    """Tells whether `METRICS` documents `name`."""
    return meaning_of(name) is not None


def meaning_of(name: str) -> str | None:
    """Returns what `METRICS` says of `name`: its own entry, or the first pattern it fits."""
    if name in METRICS:
        return METRICS[name]
    return next((text for pattern, text in METRICS.items() if fnmatchcase(name, pattern)), None)


class ThreadClock:
    """Where one thread's time goes. Only that thread calls `switch`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._activity: str | None = None
        self._since_s = 0.0
        self._seconds: dict[str, float] = {}

    def switch(self, activity: str) -> None:
        """From now on, until the next call, the thread does `activity`."""
        with self._lock:
            self._charge()
            self._activity = activity
            # Known from here on, so that a window without it reports 0.
            self._seconds.setdefault(activity, 0.0)

    def drain(self) -> dict[str, float]:
        """Returns activity -> share of the window in [0, 1], and begins a new window."""
        with self._lock:
            self._charge()
            seconds = self._seconds
            self._seconds = dict.fromkeys(seconds, 0.0)
        total = sum(seconds.values())
        return {activity: spent / total for activity, spent in seconds.items()} if total else {}

    def _charge(self) -> None:
        now_s = self._now()
        if self._activity is not None:
            self._seconds[self._activity] += now_s - self._since_s
        self._since_s = now_s


class CpuClock:
    """How busy a thread is whose activities cannot be told apart."""

    def __init__(self, now: Callable[[], float], cpu_s: Callable[[], float]) -> None:
        """`cpu_s` tells what the thread has used, in seconds; OSError once it has ended."""
        self._now = now
        self._cpu_s = cpu_s
        self._since_s, self._busy_s = now(), cpu_s()

    def drain(self) -> float | None:
        """Returns the share of the window that the thread was on a core, and begins anew;
        None if there is none to tell."""
        try:
            now_s, busy_s = self._now(), self._cpu_s()
        except OSError:
            return None
        elapsed_s, spent_s = now_s - self._since_s, busy_s - self._busy_s
        self._since_s, self._busy_s = now_s, busy_s
        return spent_s / elapsed_s if elapsed_s > 0 else None


def _this_threads_cpu_s() -> Callable[[], float]:
    clock_id = time.pthread_getcpuclockid(threading.get_ident())
    return lambda: time.clock_gettime(clock_id)


class Metrics:
    """Gathers values from any thread. `drain` closes the window and reports it.

    Means, maxima, sums and percentiles cover one window and are absent from the
    report of a window without values. Gauges hold until they are set anew.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        """Starts the first window.

        Args:
          now: The clock, in seconds; a test's own, or the process's.
        """
        self._now = now
        self._lock = threading.Lock()
        self._gauges: dict[str, float] = {}
        self._clocks: dict[str, ThreadClock] = {}
        self._cpu_clocks: dict[str, list[CpuClock]] = {}
        self._open_window()

    def mean(self, name: str, value: float, weight: float = 1.0) -> None:
        """Adds `value`, counted `weight` times, to the window's mean."""
        with self._lock:
            self._weighted_sums[name] += value * weight
            self._weights[name] += weight

    def max(self, name: str, value: float) -> None:
        """Offers `value` as the window's largest."""
        with self._lock:
            self._maxima[name] = max(value, self._maxima.get(name, value))

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
        """Sets the level that is reported until the next call."""
        with self._lock:
            self._gauges[name] = value

    def clock(self, thread_name: str) -> ThreadClock:
        """Returns the clock that reports `time/<thread_name>_<activity>_share`."""
        assert "_" not in thread_name, "a thread's name ends at the first underscore"
        with self._lock:
            return self._clocks.setdefault(thread_name, ThreadClock(self._now))

    def watch_cpu(self, thread_name: str, cpu_s: Callable[[], float] | None = None) -> None:
        """From now on reports a thread's `time/<thread_name>_busy_share`: of several threads
        by one name the busiest one's.

        Args:
          thread_name: what the metric calls it.
          cpu_s: returns the CPU seconds that it has used, and raises OSError once it has
            ended; by default it is the calling thread, but not on macOS, which does not tell.
        """
        if cpu_s is None and not hasattr(time, "pthread_getcpuclockid"):
            return
        clock = CpuClock(self._now, cpu_s or _this_threads_cpu_s())
        with self._lock:
            self._cpu_clocks.setdefault(thread_name, []).append(clock)

    def drain(self) -> dict[str, float]:
        """Returns name -> value of the window, and begins a new one."""
        with self._lock:
            weighted_sums, weights = self._weighted_sums, self._weights
            maxima, sums, samples = self._maxima, self._sums, self._samples
            report = dict(self._gauges)
            clocks, cpu_clocks = dict(self._clocks), dict(self._cpu_clocks)
            self._open_window()
        report |= {name: weighted_sums[name] / weight for name, weight in weights.items() if weight}
        report |= maxima
        report |= sums
        report |= _percentiles_of(samples)
        for thread, clock in clocks.items():
            for activity, share in clock.drain().items():
                report[f"time/{thread}_{activity}_share"] = share
        for thread, each in cpu_clocks.items():
            shares = [share for clock in each if (share := clock.drain()) is not None]
            if shares:
                report[f"time/{thread}_busy_share"] = max(shares)
        return {name: float(value) for name, value in report.items()}

    def _open_window(self) -> None:
        self._weighted_sums: defaultdict[str, float] = defaultdict(float)
        self._weights: defaultdict[str, float] = defaultdict(float)
        self._maxima: dict[str, float] = {}
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._samples: defaultdict[str, list[np.ndarray]] = defaultdict(list)


def _percentiles_of(samples: dict[str, list[np.ndarray]]) -> dict[str, float]:
    report = {}
    for name, chunks in samples.items():
        values = np.concatenate(chunks)
        if values.size:
            report[f"{name}_p50"], report[f"{name}_p99"] = np.percentile(values, (50, 99))
    return report
