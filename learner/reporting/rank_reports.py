"""One report of several learners that train together.

Every rank hands in its own, the first one merges them. Called by the thread that
reports; the ranks meet in torchrun's key-value store, not in what the trainers use.
"""

import json
import os
from collections.abc import Sequence
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any

import torch.distributed as dist

from learner.config.torchrun import Place

_TIMEOUT = timedelta(seconds=10)

# Of each rank's own doing: they add up. Env steps, and speed, are totals already.
_SUMS = ("episodes", "actors/connected", "envs/connected", "queue/unrolls", "replay/sequences")
_MAXIMA = ("*_max", "*_max_*", "*_p99")
# Totals on which the ranks agree but for the moment of reading.
_AS_THE_FIRST = ("env_steps", "env_frames", "env_steps_per_s", "learner_steps", "wall_s")


class RankReports:
    """Collects reports; of a single learner there is nothing to collect."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._store: Any = None

    def merge(self, report: dict[str, float]) -> dict[str, float]:
        """Returns the report of all ranks on the first, and `report` on the others.

        Before the ranks have met, which the first update shows, each is alone.
        """
        if self._place.size == 1 or not report["learner_steps"]:
            return report
        try:
            return merge_reports([report, *self._exchange(report)])
        except dist.DistError:
            # torchrun keeps the store, and ends before those whom it tells to end.
            return report

    def _exchange(self, report: dict[str, float]) -> list[dict[str, float]]:
        """Hands in the report of another rank than the first; gives those of all to that."""
        if self._store is None:
            address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
            self._store = dist.TCPStore(  # pyright: ignore[reportPrivateImportUsage]
                address, port, is_master=False, timeout=_TIMEOUT
            )
        if self._place.rank:
            self._store.set(_key(self._place.rank), json.dumps(report))
            return []
        keys = [_key(rank) for rank in range(1, self._place.size)]
        return [json.loads(self._store.get(key)) for key in keys if self._store.check([key])]


def merge_reports(reports: Sequence[dict[str, float]]) -> dict[str, float]:
    """Returns one report: counts added up, largest values of maxima, means of the rest.

    Args:
      reports: by rank; the first one's totals stand for all.
    """
    names = dict.fromkeys(name for report in reports for name in report)
    return {name: _merged(name, [r[name] for r in reports if name in r]) for name in names}


def _merged(name: str, values: Sequence[float]) -> float:
    if name in _AS_THE_FIRST:
        return values[0]
    if name in _SUMS:
        return sum(values)
    if any(fnmatchcase(name, pattern) for pattern in _MAXIMA):
        return max(values)
    return sum(values) / len(values)


def _key(rank: int) -> str:
    # Reports of before a restart are not those of now.
    return f"seed/report/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{rank}"
