"""Metrics: the report of each kind of value, and how a thread spends its time."""

import math
import threading
from functools import partial
from pathlib import Path
from time import thread_time

import numpy as np
import pytest

from learner.reporting.merging import weight_of
from learner.reporting.metrics import Metrics


class FakeTime:
    """A clock that a test moves."""

    def __init__(self) -> None:
        """Starts at a time that is not 0."""
        self.now_s = 100.0

    def __call__(self) -> float:
        """Returns the time in seconds."""
        return self.now_s


def test_mean_is_weighted() -> None:
    """A batch of three counts three times, in a window and in a merge of ranks."""
    metrics = Metrics()
    metrics.mean("x", 1.0, weight=3)
    metrics.mean("x", 5.0)
    report = metrics.drain()
    assert report == {"x": 2.0}
    assert weight_of(report["x"]) == 4


def test_median_weighs_its_observations_and_shares_weigh_seconds() -> None:
    """A rank that answers more, or reports less often, counts more."""
    time = FakeTime()
    metrics = Metrics(time)
    metrics.percentiles("x", np.ones((2, 3)))
    metrics.watch_cpu("server", lambda: 0.5 * time.now_s)
    metrics.clock("trainer").switch("wait")
    time.now_s += 5
    report = metrics.drain()
    weights = {name: weight_of(value) for name, value in report.items()}
    assert weights == {
        "x_p50": 6,
        "x_p99": 1,
        "time/trainer_wait_share": 5,
        "time/server_busy_share": 5,
    }


def test_mean_over_nothing_is_absent() -> None:
    """A value that was not measured is neither NaN nor 0."""
    metrics = Metrics()
    metrics.mean("never weighed", 1.0, weight=0)
    metrics.percentiles("empty", np.array([]))
    assert metrics.drain() == {}


def test_window_values_are_gone_after_a_drain() -> None:
    """Each report covers only its own window."""
    metrics = Metrics()
    metrics.mean("mean", 1.0)
    metrics.min("min", 1.0)
    metrics.max("max", 1.0)
    metrics.sum("sum", 1.0)
    metrics.percentiles("p", np.ones(3))
    assert metrics.drain().keys() == {"mean", "min", "max", "sum", "p_p50", "p_p99"}
    assert metrics.drain() == {}


@pytest.mark.parametrize("sign", [1, -1])
def test_extremes_and_sum_of_values_of_one_sign(sign: int) -> None:
    """No extreme and no sum starts from a wrong 0."""
    metrics = Metrics()
    for value in (3.0, 1.0, 2.0):
        metrics.min("min", sign * value)
        metrics.max("max", sign * value)
        metrics.sum("sum", sign * value)
    smallest, largest = sorted((sign * 1.0, sign * 3.0))
    assert metrics.drain() == {"min": smallest, "max": largest, "sum": sign * 6.0}


def test_extremes_are_nan_once_a_value_is() -> None:
    """A golden check that fails by NaN is not hidden by the next value."""
    metrics = Metrics()
    for value in (1.0, math.nan, 0.5):
        metrics.max("max", value)
        metrics.min("min", value)
    report = metrics.drain()
    assert math.isnan(report["max"]) and math.isnan(report["min"])


def test_gauge_holds_until_set_again() -> None:
    """A level that is not set again is reported again."""
    metrics = Metrics()
    metrics.gauge("x", 2)
    assert metrics.drain() == {"x": 2.0}
    assert metrics.drain() == {"x": 2.0}
    metrics.gauge("x", 3)
    assert metrics.drain() == {"x": 3.0}


def test_percentiles_cover_the_whole_window() -> None:
    """The chunks of a window count as one sample, and are copied."""
    metrics = Metrics()
    values = np.arange(0, 50, dtype=np.float32)
    metrics.percentiles("x", values)
    values += 50
    metrics.percentiles("x", np.append(values, 100).reshape(3, 17))
    assert metrics.drain() == {"x_p50": 50.0, "x_p99": 99.0}


def test_report_holds_floats() -> None:
    """Integers and NumPy's own types would not go into JSON."""
    metrics = Metrics()
    metrics.gauge("gauge", 3)
    metrics.max("max", 1)
    metrics.mean("mean", np.float64(1))
    metrics.percentiles("x", np.ones(2))
    values = metrics.drain().values()
    assert len(values) == 5
    assert all(isinstance(x, float) and not isinstance(x, np.generic) for x in values)


def test_clock_shares_add_up_to_one() -> None:
    """Time counts for the activity that the thread was in."""
    time = FakeTime()
    metrics = Metrics(time)
    clock = metrics.clock("trainer")
    clock.switch("wait")
    time.now_s += 3
    clock.switch("learn")
    time.now_s += 1
    assert metrics.drain() == {"time/trainer_wait_share": 0.75, "time/trainer_learn_share": 0.25}


def test_activity_that_spans_a_drain_is_split() -> None:
    """A thread that stays in one activity shows it in every report, and the others show 0."""
    time = FakeTime()
    metrics = Metrics(time)
    clock = metrics.clock("trainer")
    clock.switch("learn")
    time.now_s += 1
    clock.switch("wait")
    metrics.drain()
    time.now_s += 5
    assert metrics.drain() == {"time/trainer_learn_share": 0.0, "time/trainer_wait_share": 1.0}


def test_clock_without_time_or_activity_is_absent() -> None:
    """Shares are absent before any time has passed in an activity."""
    time = FakeTime()
    metrics = Metrics(time)
    idle, instant = metrics.clock("idle"), metrics.clock("instant")
    time.now_s += 1
    instant.switch("work")
    assert metrics.drain() == {}
    assert idle is metrics.clock("idle")


def test_busy_share_is_of_the_watched_thread_and_ends_with_it() -> None:
    """A thread that computes is busy, one that waits is not, and one that ended has no share."""
    time, may_end = FakeTime(), threading.Event()
    metrics, watched = Metrics(time), threading.Event()

    def wait() -> None:
        metrics.watch_cpu("waiting")
        watched.set()
        may_end.wait()

    waiting = threading.Thread(target=wait)
    waiting.start()
    watched.wait()
    metrics.watch_cpu("computing")
    used_until_s = thread_time() + 0.02
    while thread_time() < used_until_s:
        pass
    time.now_s += 1
    report = metrics.drain()
    assert report["time/computing_busy_share"] >= 0.02
    assert report["time/waiting_busy_share"] < 0.02
    may_end.set()
    waiting.join()
    # The system ends a thread a moment after Python does (Linux).
    while Path(f"/proc/self/task/{waiting.native_id}").exists():
        threading.Event().wait(0.001)
    time.now_s += 1
    assert set(metrics.drain()) == {"time/computing_busy_share"}


def test_of_several_threads_by_one_name_the_busiest_counts() -> None:
    """The threads work side by side, and the busiest reaches its limit first."""
    time = FakeTime()
    metrics, used_s = Metrics(time), {"first": 0.0, "second": 0.0}

    def cpu_s_of(thread: str) -> float:
        if thread not in used_s:
            raise ProcessLookupError
        return used_s[thread]

    for thread in used_s:
        metrics.watch_cpu("server", partial(cpu_s_of, thread))
    used_s |= {"first": 1.5, "second": 0.5}
    time.now_s += 2
    assert metrics.drain() == {"time/server_busy_share": 0.75}
    del used_s["first"]
    used_s["second"] = 0.9
    time.now_s += 2
    assert metrics.drain() == {"time/server_busy_share": pytest.approx(0.2)}


@pytest.mark.parametrize(("used_s", "share"), [(5.0, 1.0), (-1.0, 0.0)])
def test_share_of_a_thread_stays_between_0_and_1(used_s: float, share: float) -> None:
    """The CPU clock and the clock of the window are not read at the same moment."""
    time, cpu_s = FakeTime(), 10.0
    metrics = Metrics(time)
    metrics.watch_cpu("server", lambda: cpu_s)
    time.now_s += 2
    cpu_s += used_s
    assert metrics.drain() == {"time/server_busy_share": share}


def test_no_value_is_lost_or_counted_twice_between_threads() -> None:
    """Three threads write while a fourth one drains."""
    metrics = Metrics()
    writing = threading.Barrier(4)

    def write() -> None:
        writing.wait()
        for _ in range(2000):
            metrics.sum("sum", 1.0)
            metrics.percentiles("x", np.ones(1))

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    writing.wait()
    total = 0.0
    while any(thread.is_alive() for thread in threads):
        total += metrics.drain().get("sum", 0.0)
    total += metrics.drain().get("sum", 0.0)
    assert total == 6000
