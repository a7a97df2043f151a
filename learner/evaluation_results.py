"""What `seed eval` prints: how far it is, on stderr, and the returns of its games, on stdout.

Called by the main thread.
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from learner.checkpoint import Checkpoint
from learner.config.args import EvalArgs
from seed.stdout import print_json
from seed.wire import Episode

_EVERY_S = 10.0


class ProgressLines:
    """Says now and then how far an evaluation is: games may take minutes, or may never end."""

    def __init__(self, num_episodes: int, clock: Callable[[], float] = time.monotonic) -> None:
        """The first line is due after `_EVERY_S` seconds."""
        self._num_episodes = num_episodes
        self._clock = clock
        self._due_at = clock() + _EVERY_S

    def say_if_due(self, num_ended: int, env_steps: int) -> None:
        """Prints a line if the last one is long enough ago."""
        if self._clock() < self._due_at:
            return
        self._due_at += _EVERY_S
        line = f"{num_ended} of {self._num_episodes} games ended, {env_steps:,} env steps so far"
        if env_steps and not num_ended:
            line += "; where games need not end, cut them with --max-episode-steps N"
        print(f"seed eval: {line}", file=sys.stderr, flush=True)


def print_results(args: EvalArgs, checkpoint: Checkpoint, episodes: Sequence[Episode]) -> None:
    """Prints a table, or with --json one object; says on stderr if games are missing."""
    if len(episodes) < args.episodes:
        _warn_of_missing(len(episodes), args.episodes)
    results = _results(args, checkpoint, episodes)
    if args.json:
        print_json(results)
    elif episodes:
        Console().print(_table(checkpoint, results))


def _warn_of_missing(num_ended: int, num_episodes: int) -> None:
    line = f"seed eval: stopped after {num_ended} of {num_episodes} games"
    if num_ended:
        line += "; the ones that end first are the short ones, so their mean may mislead"
    print(line, file=sys.stderr)


def _results(args: EvalArgs, checkpoint: Checkpoint, episodes: Sequence[Episode]) -> dict[str, Any]:
    """Returns what --json prints; values that no game gives are None."""
    returns = [episode.episode_return for episode in episodes]
    lengths = [episode.length for episode in episodes]
    return {
        "eval_return_mean": statistics.fmean(returns) if returns else None,
        "eval_return_std": statistics.pstdev(returns) if returns else None,
        "eval_return_min": min(returns, default=None),
        "eval_return_max": max(returns, default=None),
        "eval_length_mean": statistics.fmean(lengths) if lengths else None,
        "eval_episodes": len(episodes),
        "stopped": len(episodes) < args.episodes,
        "learner_step": checkpoint.learner_step,
        "env_steps": checkpoint.state["env_steps"],
        "checkpoint": str(checkpoint.path),
        "returns": returns,
    }


def _table(checkpoint: Checkpoint, results: dict[str, Any]) -> Table:
    num_games = results["eval_episodes"]
    table = Table(title=f"{num_games} greedy games, checkpoint {checkpoint.path}")
    for column in ("return mean", "std", "min", "max", "length mean"):
        table.add_column(column, justify="right")
    table.add_row(
        f"{results['eval_return_mean']:.2f}",
        f"{results['eval_return_std']:.2f}",
        f"{results['eval_return_min']:g}",
        f"{results['eval_return_max']:g}",
        f"{results['eval_length_mean']:.0f}",
    )
    return table
