"""Records when real actors report: docs/results/arrivals.json.

    python -m tools.record_arrivals --out docs/results/arrivals.json

Actors of two groups play Pong for a learner without a network, which answers at once; what
is kept is how long each group takes from an answer to its next step. That does not depend
on when the learner answers, but for two groups of one actor that share a core, and
`tools/simulate_batching.py` plays it back under every rule for closing a batch.
"""

import argparse
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
from typing import Any, NamedTuple

import numpy as np

from learner.batcher import Batcher, Request
from learner.load import LoadedLearner
from seed import wire
from seed.config import EnvConfig, InferenceConfig
from seed.config_file import env_settings_to_json
from seed.pb import inference_pb2 as pb
from seed.presets import PRESETS
from seed.provenance import evidence_header

# Field of the file that holds them.
RECORDINGS_KEY = "recordings"

_ENVS_PER_GROUP = 32
_NUM_GROUPS = 2
_RECORDED_S = 6.0
# For the first episodes to lose step with each other.
_WARM_UP_S = 2.0


class Recording(NamedTuple):
    """How a fleet reported."""

    num_connected_envs: int
    """Those of actors that report no more included."""
    envs_per_group: int
    think_s: list[list[float]]
    """Of each group that reports: seconds from an answer to the next step, in order."""


class _Recorder(Batcher):
    """A batcher that takes note of its requests; `submit` is the server thread's."""

    def __init__(self) -> None:
        super().__init__(InferenceConfig(min_fill=0.0))
        self.think_s: dict[int, list[float]] = defaultdict(list)
        """By the first slot of a group."""
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
    """All stand still for 0.1 s of every 0.4 s, and then report at once."""
    _stop_now_and_then(actors, seconds, running_s=0.3, stopped_s=0.1)


def _slow_one(actors: Sequence[subprocess.Popen[bytes]], seconds: float) -> None:
    """One gets a quarter of its core."""
    _stop_now_and_then(actors[:1], seconds, running_s=0.01, stopped_s=0.03)


def _stop_one(actors: Sequence[subprocess.Popen[bytes]], seconds: float) -> None:
    """Its connection stays: nothing tells the learner."""
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
    """What happens to a fleet while it is recorded."""

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
    """Plays, and returns what was seen in `seconds` after the warm-up."""
    recorder = _Recorder()
    learner = LoadedLearner("null", _task(), batcher=recorder)
    with learner.serving() as address, _actors(scenario.num_actors, address) as actors:
        learner.answered.wait()
        while len(recorder.think_s) < scenario.num_actors * _NUM_GROUPS:
            time.sleep(0.01)
        time.sleep(warm_up_s)
        before = {group: len(times) for group, times in recorder.think_s.items()}
        scenario.disturb(actors, seconds)
        seen = {group: times[before[group] :] for group, times in recorder.think_s.items()}
    # A stopped process finishes what it had begun, and may report once more.
    reporting = [times for times in seen.values() if len(times) > 2]
    num_envs = scenario.num_actors * _NUM_GROUPS * _ENVS_PER_GROUP
    return Recording(num_envs, _ENVS_PER_GROUP, reporting)


def _task() -> pb.Task:
    env: EnvConfig = PRESETS["atari-vtrace-cpu"].config.env
    return pb.Task(
        protocol_version=wire.PROTOCOL_VERSION,
        env_id=env.env_id,
        env_settings_json=env_settings_to_json(env),
        envs_per_group=_ENVS_PER_GROUP,
        num_groups=_NUM_GROUPS,
    )


@contextlib.contextmanager
def _actors(count: int, address: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    command = [sys.executable, "-m", "actors", "--learner", address, "--share-memory"]
    command += ["--exit-with-parent", str(os.getpid())]
    actors = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(count)]
    try:
        yield actors
    finally:
        for actor in actors:
            actor.kill()
            actor.wait()


def to_json(recordings: dict[str, Recording]) -> dict[str, Any]:
    """Returns what a file of recordings holds besides its header; times in milliseconds."""
    return {
        name: {
            "num_connected_envs": recording.num_connected_envs,
            "envs_per_group": recording.envs_per_group,
            "think_ms": [[round(1000 * s, 2) for s in times] for times in recording.think_s],
        }
        for name, recording in recordings.items()
    }


def load_recordings(path: Path) -> dict[str, Recording]:
    """Returns the recordings of a file, by scenario."""
    held = json.loads(path.read_text())[RECORDINGS_KEY]
    return {
        name: Recording(
            recording["num_connected_envs"],
            recording["envs_per_group"],
            [[ms / 1000 for ms in times] for times in recording["think_ms"]],
        )
        for name, recording in held.items()
    }


def main() -> int:
    """Records every scenario; returns the exit code."""
    parser = argparse.ArgumentParser(description="Records when real actors report.")
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    args = parser.parse_args()
    results = evidence_header(f"python -m tools.record_arrivals --out {args.out}")
    results[RECORDINGS_KEY] = to_json({name: record(each) for name, each in SCENARIOS.items()})
    args.out.write_text(json.dumps(results) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
