"""What `seed eval` prints while it plays, at its end, and when it is stopped."""

import json
from pathlib import Path

import pytest

from learner.checkpoint import Checkpoint
from learner.config.args import EvalArgs
from learner.evaluation_results import ProgressLines, print_results
from seed.wire import Episode

CHECKPOINT = Checkpoint(7, {}, {"env_steps": 900}, Path("run/checkpoints/7"))
GAMES = [Episode(env=0, episode_return=1.0, length=4), Episode(0, 4.0, 8)]


def args(*, as_json: bool, episodes: int = 2) -> EvalArgs:
    """Returns the flags of an evaluation."""
    return EvalArgs(run=Path("run"), episodes=episodes, json=as_json)


def test_progress_is_told_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    """It goes to stderr, so that --json stays one object."""
    now = 0.0
    progress = ProgressLines(20, clock=lambda: now)
    for now in (5.0, 9.9, 10.0, 10.5, 19.0, 20.0, 30.0):
        progress.say_if_due(int(now // 10) - 1, 12_345)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "seed eval: 0 of 20 games ended, 12,345 env steps so far; "
        "where games need not end, cut them with --max-episode-steps N",
        "seed eval: 1 of 20 games ended, 12,345 env steps so far",
        "seed eval: 2 of 20 games ended, 12,345 env steps so far",
    ]


def test_all_games_are_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is said on stderr."""
    print_results(args(as_json=True), CHECKPOINT, GAMES)
    out, err = capsys.readouterr()
    assert err == ""
    results = json.loads(out)
    assert results["eval_return_mean"] == 2.5
    assert results["eval_return_std"] == 1.5
    assert (results["eval_return_min"], results["eval_return_max"]) == (1, 4)
    assert (results["eval_length_mean"], results["eval_episodes"]) == (6, 2)
    assert results["stopped"] is False
    assert (results["learner_step"], results["env_steps"]) == (7, 900)
    assert results["returns"] == [1, 4]


def test_games_that_ended_before_a_stop_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The note says how many are missing, and that their mean may mislead."""
    print_results(args(as_json=False, episodes=5), CHECKPOINT, GAMES)
    out, err = capsys.readouterr()
    assert "2 greedy games" in out and "2.50" in out
    assert err == (
        "seed eval: stopped after 2 of 5 games; "
        "the ones that end first are the short ones, so their mean may mislead\n"
    )


@pytest.mark.parametrize("as_json", [True, False])
def test_stop_before_the_first_game_has_ended(
    capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    """There is no mean of no games: no table, and null in the JSON."""
    print_results(args(as_json=as_json), CHECKPOINT, [])
    out, err = capsys.readouterr()
    assert err == "seed eval: stopped after 0 of 2 games\n"
    if as_json:
        results = json.loads(out)
        assert results["eval_return_mean"] is None and results["eval_length_mean"] is None
        assert results["stopped"] is True and results["returns"] == []
    else:
        assert out == ""
