"""What a metric is: its kind, and how values of it become one number over time and over ranks.

`metric_table.py` lists the metrics. Torch-free.
"""

from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    """How the values of a metric become one number over time.

    A window is the time between two reports. Each kind says what one report holds, and
    how a reader merges the reports of several windows into one.
    """

    TOTAL = "everything counted since the run began", "the newest"
    LEVEL = "the value at the time of the report", "the newest"
    SUM = "the sum of the window; absent if nothing happened", "the sum"
    MIN = "the smallest value of the window", "the smallest"
    MAX = "the largest value of the window", "the largest"
    MEAN = "the weighted mean of the window", "the mean by the same weights"
    STD = (
        "the standard deviation of the window's values",
        "the root of the mean square by the same weights: the spread within a window",
    )
    MEDIAN = (
        "the median of the window's observations",
        "the mean of the medians, by number of observations; an approximation",
    )
    P99 = (
        "the 99th percentile of the window's observations",
        "the largest; an upper bound, since percentiles cannot be merged exactly",
    )

    def __init__(self, in_window: str, over_windows: str) -> None:
        self.in_window = in_window
        """What one report holds."""
        self.over_windows = over_windows
        """What the reports of several windows make together."""

    @property
    def stands(self) -> bool:
        """Whether a value stays true until there is a new one."""
        return self in (Kind.TOTAL, Kind.LEVEL)


class OverRanks(Enum):
    """How the reports of several learners that train together become one number."""

    SAME = "all ranks measure the same thing; the value is the first rank's"
    ADD = "each rank measures its own part; the value is the sum"
    MIN = "the smallest value of any rank"
    MAX = "the largest value of any rank"
    MEAN = "the mean over ranks, by the weight that the table names"
    ROOT_MEAN_SQUARE = "the root of the mean square over ranks, by the weight that the table names"


class Metric(NamedTuple):
    """One row of the table."""

    name: str
    """As in metrics.jsonl; "*" stands for any text."""
    unit: str
    """Empty for a pure number."""
    meaning: str
    kind: Kind
    over_ranks: OverRanks
    weight: str = ""
    """What a mean counts its values by. Empty where no mean is taken."""

    @property
    def help(self) -> str:
        """Meaning and unit in one line."""
        return f"{self.meaning} [{self.unit}]" if self.unit else self.meaning
