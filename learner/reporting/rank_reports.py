"""One report of several learners that train together.

Every rank hands in its reports, and the first rank merges them. Called by the thread that
reports. The ranks exchange reports through torchrun's key-value store, not through the
process group of the trainers.
"""

import os
from collections import defaultdict
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from learner.config.torchrun import Place
from learner.reporting.merging import decode_report, encode_report, merge_ranks, merge_windows
from learner.reporting.metric_table import metric_of

_TIMEOUT = timedelta(seconds=10)


class RankReports:
    """Collects the reports of all ranks. A single learner has nothing to collect.

    Ranks report at times of their own. Between two reports of the first rank another may have
    handed in none, one or several. Each is merged exactly once. For a rank that handed in none,
    the totals and levels of its last report still count.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._store: Any = None
        self._num_handed_in = 0
        # For each other rank: the reports read so far, and the values that still count.
        self._num_read: defaultdict[int, int] = defaultdict(int)
        self._standing: defaultdict[int, dict[str, float]] = defaultdict(dict)

    def merge(self, report: dict[str, float]) -> dict[str, float]:
        """Returns the report of all ranks on the first rank, and `report` on the others.

        The first update shows that the ranks have met. Before it each rank reports alone.
        """
        if self._place.size == 1 or not report["learner_steps"]:
            return report
        try:
            self._connect()
            if self._place.rank:
                self._hand_in(report)
                return report
            return merge_ranks([report, *map(self._collect, range(1, self._place.size))])
        except dist.DistError:
            # torchrun keeps the store, and may end before the ranks that it stops.
            return report

    def _connect(self) -> None:
        if self._store is None:
            address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
            self._store = dist.TCPStore(  # pyright: ignore[reportPrivateImportUsage]
                address, port, is_master=False, timeout=_TIMEOUT
            )

    def _hand_in(self, report: dict[str, float]) -> None:
        key = _key(self._place.rank, self._num_handed_in)
        self._store.set(key, encode_report(report))
        # set() does not wait for the store. The answer to check() shows that the store has it.
        self._store.check([key])
        self._num_handed_in += 1

    def _collect(self, rank: int) -> dict[str, float]:
        """Returns another rank's new reports and its totals and levels that still count, merged."""
        windows = [self._standing[rank]]
        while self._store.check([key := _key(rank, self._num_read[rank])]):
            windows.append(decode_report(self._store.get(key)))
            self._store.delete_key(key)
            self._num_read[rank] += 1
        merged = merge_windows(windows)
        self._standing[rank] = {
            name: value for name, value in merged.items() if metric_of(name).kind.stands
        }
        return merged


def _key(rank: int, number: int) -> str:
    """Returns where a rank's report lies. Reports from before a restart have other keys."""
    return f"seed/report/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{rank}/{number}"
