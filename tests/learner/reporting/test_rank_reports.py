"""Reports of several learners, sent through a store and merged by the first."""

from typing import NamedTuple

import pytest
import torch.distributed as dist

from learner.config.torchrun import Place
from learner.reporting.merging import Weighted
from learner.reporting.rank_reports import RankReports


class TwoRanks(NamedTuple):
    """Both ends of the exchange, and the store that torchrun keeps."""

    first: RankReports
    second: RankReports
    store: dist.TCPStore  # pyright: ignore[reportPrivateImportUsage]


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> TwoRanks:
    """Two learners that have joined."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True)  # pyright: ignore[reportPrivateImportUsage]
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(store.port))
    return TwoRanks(RankReports(Place(0, 2, 0)), RankReports(Place(1, 2, 1)), store)


def report(**values: float) -> dict[str, float]:
    """Returns a report of a learner that trains; "__" in a name stands for "/"."""
    return {"learner_steps": 9.0} | {name.replace("__", "/"): x for name, x in values.items()}


def test_first_learner_merges_and_the_others_keep_their_own(ranks: TwoRanks) -> None:
    """Means are merged with the weights that came with them."""
    mine = report(episodes=4, episode__return_mean=Weighted(3, 2), replay__gib=1.5)
    theirs = report(episodes=6, episode__return_mean=Weighted(7, 6), replay__gib=0.5)
    assert ranks.second.merge(theirs) == theirs
    assert ranks.first.merge(mine) == report(episodes=10, episode__return_mean=6.0, replay__gib=2.0)


def test_every_report_of_another_rank_is_merged_once(ranks: TwoRanks) -> None:
    """Two reports since the last merge count together, and not again in the next merge."""
    for refused, episodes in ((1, 2), (2, 5)):
        ranks.second.merge(report(episodes=episodes, actors__refused=refused))
    mine = report(episodes=1, actors__refused=10)
    assert ranks.first.merge(mine) == report(episodes=6, actors__refused=13)
    assert ranks.first.merge(mine)["actors/refused"] == 10
    ranks.second.merge(report(episodes=7, actors__refused=4))
    assert ranks.first.merge(mine) == report(episodes=8, actors__refused=14)


def test_levels_stand_until_a_rank_reports_again(ranks: TwoRanks) -> None:
    """A slow rank keeps its actors, while the values of its window are unknown."""
    ranks.second.merge(
        report(actors__connected=3, episode__return_mean_100=Weighted(4, 1), policy__lag_max=8)
    )
    mine = report(actors__connected=1, episode__return_mean_100=Weighted(0, 3), policy__lag_max=2)
    both = report(actors__connected=4, episode__return_mean_100=1.0)
    assert ranks.first.merge(mine) == both | {"policy/lag_max": 8}
    assert ranks.first.merge(mine) == both | {"policy/lag_max": 2}


def test_rank_that_never_reported_is_ignored(ranks: TwoRanks) -> None:
    """The first learner then reports alone."""
    assert ranks.first.merge(report(episodes=1)) == report(episodes=1)


def test_store_does_not_grow(ranks: TwoRanks) -> None:
    """Reports are deleted once read, since a run may make millions."""
    before = ranks.store.num_keys()
    for episodes in range(5):
        ranks.second.merge(report(episodes=episodes))
        ranks.first.merge(report(episodes=1))
    assert ranks.store.num_keys() == before


def test_reports_from_before_a_restart_are_not_read(
    ranks: TwoRanks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are still in the store, which torchrun keeps when it restarts the ranks."""
    ranks.second.merge(report(episodes=100))
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert ranks.first.merge(report(episodes=1)) == report(episodes=1)


def test_learners_that_have_not_met_report_alone() -> None:
    """There may be no store yet."""
    mine = {"learner_steps": 0.0, "episodes": 1.0}
    assert RankReports(Place(0, 2, 0)).merge(mine) == mine
