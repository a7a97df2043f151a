"""Records when real actors report: docs/results/arrivals.json.

    python -m seed_bench.studies.record_arrivals --out docs/results/arrivals.json

Actors of two groups play Pong for a learner without a network, which answers at once. The time
that each group takes from an answer to its next step is recorded. It hardly depends on when the
learner answers (two groups of one actor share a core), so that
`seed_bench/studies/simulate_batching.py` can play it back under every rule for closing a batch.
"""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tyro

from learner.acting.batcher import Batcher, Request
from learner.config.presets import PRESETS
from learner.config.run_config import ActorConfig, InferenceConfig
from learner.serving.task import make_task
from seed.errors import SeedError, exits_on_error
from seed.provenance import evidence_header
from seed_bench.parts.loaded_learner import LoadedLearner
from seed_bench.studies.recordings import RECORDINGS_KEY, Recording, to_json

_ENV = PRESETS["atari-vtrace-cpu"].config.env
_ACTOR = ActorConfig(envs_per_group=32, num_groups=2)
_RECORDED_S = 6.0
# Time in which the first episodes lose step with each other.
_WARM_UP_S = 2.0


class _Recorder(Batcher):
    """A batcher that records the times of its requests. The server thread calls `submit`."""

    def __init__(self) -> None:
        super().__init__(InferenceConfig(min_fill=0.0))
        self.think_s: dict[int, list[float]] = defaultdict(list)
        """Seconds from an answer to the next step, by the first slot of a group."""
        self._answered_at: dict[int, float] = {}

    def submit(self, request: Request) -> None:
        group = int(request.slots[0])
        if group in self._answered_at:
            self.think_s[group].append(request.submitted_at - self._answered_at[group])

        def reply(actions: np.ndarray) -> None:
            self._answered_at[group] = time.monotonic()
            request.reply(actions)

        super().submit(dataclasses.replace(request, reply=reply))


Disturbance = Callable[[Sequence[subprocess.Popen[bytes]], float], None]


def _let_be(actors: Sequence[subprocess.Popen[bytes]], seconds: float) -> None:
    del actors
    time.sleep(seconds)


def _pause_all(actors: Sequence[subprocess.Popen[bytes]], seconds: float) -> None:
    """Stops all actors for 0.1 s of every 0.4 s; then they report at once."""
    _stop_now_and_then(actors, seconds, running_s=0.3, stopped_s=0.1)


def _slow_one(actors: Sequence[subprocess.Popen[bytes]], seconds: float) -> None:
    """Gives one actor a quarter of its core."""
    _stop_now_and_then(actors[:1], seconds, running_s=0.01, stopped_s=0.03)


def _stop_one(actors: Sequence[subprocess.Popen[bytes]], seconds: float) -> None:
    """Stops one actor; its connection stays open, so the learner does not notice."""
    with _stopped(actors[:1]):
        time.sleep(seconds)


def _stop_now_and_then(
    actors: Sequence[subprocess.Popen[bytes]],
    seconds: float,
    *,
    running_s: float,
    stopped_s: float,
) -> None:
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        time.sleep(running_s)
        with _stopped(actors):
            time.sleep(stopped_s)


@contextlib.contextmanager
def _stopped(actors: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    for actor in actors:
        actor.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for actor in actors:
            actor.send_signal(signal.SIGCONT)


class Scenario(NamedTuple):
    """A fleet, and the disturbance while it is recorded."""

    num_actors: int
    disturb: Disturbance


SCENARIOS = {
    "steady": Scenario(2, _let_be),
    "bursty": Scenario(2, _pause_all),
    "straggler": Scenario(2, _slow_one),
    "one dead": Scenario(3, _stop_one),
}


def record(
    scenario: Scenario, *, warm_up_s: float = _WARM_UP_S, seconds: float = _RECORDED_S
) -> Recording:
    """Returns the recording of `seconds` after the warm-up."""
    recorder = _Recorder()
    learner = LoadedLearner("null", make_task(_ENV, _ACTOR), batcher=recorder)
    with learner.serving() as address, _actors(scenario.num_actors, address) as actors:
        while len(recorder.think_s) < scenario.num_actors * _ACTOR.num_groups:
            if any(actor.poll() is not None for actor in actors):
                raise SeedError("an actor ended before it had reported")
            time.sleep(0.01)
        time.sleep(warm_up_s)
        before = {group: len(times) for group, times in recorder.think_s.items()}
        scenario.disturb(actors, seconds)
        seen = {group: times[before[group] :] for group, times in recorder.think_s.items()}
    # A stopped process completes the step it had begun, and may report once more.
    reporting = [times for times in seen.values() if len(times) > 2]
    return Recording(scenario.num_actors * _ACTOR.num_envs, _ACTOR.envs_per_group, reporting)


@contextlib.contextmanager
def _actors(count: int, address: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    command = [sys.executable, "-m", "actors", "--learner", address, "--share-memory"]
    command += ["--exit-with-parent", str(os.getpid())]
    actors = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield actors
    finally:
        for actor in actors:
            actor.kill()
            actor.wait()


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordArgs:
    """Records when real actors report."""

    out: Path
    """JSON file to write."""


@exits_on_error("record_arrivals")
def main(argv: Sequence[str]) -> int:
    """Records every scenario; returns the exit code."""
    args = tyro.cli(RecordArgs, prog="python -m seed_bench.studies.record_arrivals", args=argv)
    results = evidence_header(f"python -m seed_bench.studies.record_arrivals --out {args.out}")
    recordings = {name: record(scenario) for name, scenario in SCENARIOS.items()}
    results[RECORDINGS_KEY] = to_json(recordings)
    args.out.write_text(json.dumps(results) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
