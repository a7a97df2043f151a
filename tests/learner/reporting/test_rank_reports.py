"""Reports of several learners made one."""

import pytest
import torch.distributed as dist

from learner.config.torchrun import Place
from learner.reporting.rank_reports import RankReports, merge_reports


def report(**values: float) -> dict[str, float]:
    """Returns a report, "_" in place of "/"."""
    return {"learner_steps": 9.0} | {name.replace("__", "/"): x for name, x in values.items()}


def test_counts_add_up_and_levels_are_averaged() -> None:
    """What all agree on is taken from the first; what only some have counts for them."""
    first = report(env_steps=100, episodes=4, actors__connected=1, loss__total=2.0, a__b_max=5)
    second = report(env_steps=90, episodes=6, actors__connected=3, loss__total=4.0, a__b_max=9)
    second["inference/latency_ms_p99"] = 7.0
    assert merge_reports([first, second]) == report(
        env_steps=100,
        episodes=10,
        actors__connected=4,
        loss__total=3.0,
        a__b_max=9,
        inference__latency_ms_p99=7.0,
    )


def test_first_learner_gets_the_newest_report_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through a real store; the others keep their own."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True)  # pyright: ignore[reportPrivateImportUsage]
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(store.port))
    first, second = RankReports(Place(0, 2, 0)), RankReports(Place(1, 2, 1))
    assert first.merge(report(episodes=1)) == report(episodes=1)
    for episodes in (2, 5):
        mine = report(episodes=episodes)
        assert second.merge(mine) == mine
    assert first.merge(report(episodes=1)) == report(episodes=6)


def test_learners_that_have_not_met_report_alone() -> None:
    """There may be no store yet to meet in."""
    mine = {"learner_steps": 0.0, "episodes": 1.0}
    assert RankReports(Place(0, 2, 0)).merge(mine) == mine
