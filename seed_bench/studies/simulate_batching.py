"""Compares rules for closing a batch, in virtual time.

    python -m seed_bench.studies.simulate_batching

The batcher is the real one, with a clock that only events move. The device is a model. The
actors are models too, or report as recorded actors did (`record_arrivals.py`). The loop is
closed, as in a run: a group steps again only after its answer, so a rule that makes groups
wait also gets fewer steps. Deterministic: the table is the same on every machine.
"""

import dataclasses
import functools
import heapq
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import numpy as np

from learner.acting.batcher import Batcher, Request
from learner.config.run_config import InferenceConfig
from seed.wire import EnvOutputs
from seed_bench.studies.recordings import Recording, load_recordings

RECORDINGS = Path(__file__).parents[2] / "docs" / "results" / "arrivals.json"

SIMULATED_S = 5.0
# Earlier events are not counted: in the beginning all groups report at once.
WARM_UP_S = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Device:
    """Acting on n environments takes fixed_s + n * per_env_s."""

    name: str
    fixed_s: float
    per_env_s: float
    copies_of_recorded: int
    """How many copies of the recorded fleet the device serves: enough to keep it busy."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fleet:
    """Actors of two groups each, on a core each."""

    name: str
    num_actors: int = 16
    envs_per_group: int = 32
    step_s: float = 300e-6
    """Seconds of one environment's step, on average; each step of a group is up to a fifth off."""
    pause_every_s: float = np.inf
    """Seconds between pauses of the whole fleet, each of `pause_s`; then all step at once."""
    pause_s: float = 0.1
    num_slow: int = 0
    """Actors whose steps take four times as long."""
    num_dead: int = 0
    """Actors that are connected and no longer report."""


# Pong with the shallow network on one CPU core; a ResNet on a GPU.
DEVICES = (
    Device(name="CPU", fixed_s=500e-6, per_env_s=80e-6, copies_of_recorded=1),
    Device(name="GPU", fixed_s=2e-3, per_env_s=5e-6, copies_of_recorded=8),
)

_CPU_FLEETS = (
    Fleet(name="steady", num_actors=3),
    Fleet(name="overload", num_actors=8),
    Fleet(name="bursty", num_actors=3, pause_every_s=0.3),
    Fleet(name="stragglers", num_actors=4, num_slow=2),
    Fleet(name="one dead", num_actors=3, num_dead=1),
    Fleet(name="one actor", num_actors=1),
)
_GPU_FLEETS = tuple(
    dataclasses.replace(
        fleet,
        num_actors=4 * fleet.num_actors if fleet.num_actors > 1 else 1,
        num_slow=4 * fleet.num_slow,
        num_dead=4 * fleet.num_dead,
    )
    for fleet in _CPU_FLEETS
)
FLEETS = dict(zip((device.name for device in DEVICES), (_CPU_FLEETS, _GPU_FLEETS), strict=True))


class FixedShareBatcher(Batcher):
    """Full, deadline, or idle device and a fixed share of the connected environments."""

    def _enough(self) -> int:
        config = self._config
        share = int(np.ceil(config.min_fill * self._connected_envs))
        return min(config.max_inference_batch, share)

    def _longest_wait_s(self) -> float:
        return self._config.max_wait_ms / 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    """A way to close batches."""

    name: str
    make: Callable[[InferenceConfig, Callable[[], float]], Batcher]
    config: InferenceConfig


RULES = (
    Rule(name="all or 10 ms", make=FixedShareBatcher, config=InferenceConfig(min_fill=1.0)),
    Rule(name="half or 10 ms", make=FixedShareBatcher, config=InferenceConfig(min_fill=0.5)),
    Rule(name="quarter or 10 ms", make=FixedShareBatcher, config=InferenceConfig(min_fill=0.25)),
    Rule(name="whatever is there", make=FixedShareBatcher, config=InferenceConfig(min_fill=0.0)),
    Rule(name="rate, up to a quarter", make=Batcher, config=InferenceConfig(min_fill=0.25)),
    Rule(name="rate, up to all", make=Batcher, config=InferenceConfig(min_fill=1.0)),
)


@dataclasses.dataclass
class Outcome:
    """The effect of a rule on a fleet, after the warm-up."""

    batch_sizes: list[int] = dataclasses.field(default_factory=list)
    latencies_s: list[float] = dataclasses.field(default_factory=list)
    """Seconds from the arrival of each message to its answer."""
    busy_s: float = 0.0


class Actors(Protocol):
    """The groups that report, and their times."""

    num_connected_envs: int
    envs_per_group: int
    groups: range
    """The groups that report; 0 is the first."""

    def reports_at(self, group: int, answered_s: float) -> float:
        """Returns when a group reports next, if it was answered at `answered_s`."""
        ...


class ModelActors:
    """The actors of a `Fleet`: each steps one of its two groups at a time."""

    def __init__(self, fleet: Fleet) -> None:
        self.num_connected_envs = 2 * fleet.num_actors * fleet.envs_per_group
        self.envs_per_group = fleet.envs_per_group
        self.groups = range(2 * (fleet.num_actors - fleet.num_dead))
        self._fleet = fleet
        self._rng = random.Random(0)
        self._core_free_s = [0.0] * fleet.num_actors

    def reports_at(self, group: int, answered_s: float) -> float:
        actor, fleet = group // 2, self._fleet
        step_s = fleet.envs_per_group * fleet.step_s * self._rng.uniform(0.8, 1.2)
        if actor < fleet.num_slow:
            step_s *= 4
        start_s = max(answered_s, self._core_free_s[actor])
        since_pause_s = start_s % fleet.pause_every_s
        if start_s > fleet.pause_every_s and since_pause_s < fleet.pause_s:
            start_s += fleet.pause_s - since_pause_s
        self._core_free_s[actor] = start_s + step_s
        return start_s + step_s


class RecordedActors:
    """Each group takes its recorded times, again and again.

    The copies of a group begin at different places of its record, so that they do not report
    together.
    """

    def __init__(self, recording: Recording, *, copies: int) -> None:
        self.num_connected_envs = copies * recording.num_connected_envs
        self.envs_per_group = recording.envs_per_group
        self.groups = range(copies * len(recording.think_s))
        rng = random.Random(0)
        self._think_s = recording.think_s
        self._next = [rng.randrange(len(self._record(group))) for group in self.groups]

    def reports_at(self, group: int, answered_s: float) -> float:
        record, index = self._record(group), self._next[group]
        self._next[group] = (index + 1) % len(record)
        return answered_s + record[index]

    def _record(self, group: int) -> list[float]:
        return self._think_s[group % len(self._think_s)]


class Simulation:
    """One fleet, one device, one rule."""

    def __init__(
        self, actors: Actors, device: Device, rule: Rule, seconds: float = SIMULATED_S
    ) -> None:
        self._seconds = seconds
        self._actors = actors
        self._device = device
        self._now_s = 0.0
        self._batcher = rule.make(rule.config, lambda: self._now_s)
        self._batcher.set_connected(actors.num_connected_envs)
        self._arrivals: list[tuple[float, int]] = []  # (when, group), a heap
        self._outcome = Outcome()

    def run(self) -> Outcome:
        """Returns what happened between the warm-up and the end."""
        for group in self._actors.groups:
            self._step(group)
        while self._now_s < self._seconds:
            self._deliver()
            wait_s = self._batcher.seconds_to_close()
            if wait_s <= 0:
                self._act(self._batcher.next_batch())
            else:
                # At least a nanosecond: otherwise rounding could stop the clock.
                closes_s = self._now_s + max(wait_s, 1e-9)
                arrives_s = self._arrivals[0][0] if self._arrivals else np.inf
                self._now_s = min(closes_s, arrives_s)
        return self._outcome

    def _deliver(self) -> None:
        """Submits the requests that have arrived by now."""
        while self._arrivals and self._arrivals[0][0] <= self._now_s:
            arrived_s, group = heapq.heappop(self._arrivals)
            self._batcher.submit(make_request(group, self._actors.envs_per_group, arrived_s))

    def _act(self, batch: list[Request]) -> None:
        size = sum(request.num_envs for request in batch)
        busy_s = self._device.fixed_s + size * self._device.per_env_s
        self._now_s += busy_s
        if self._now_s > WARM_UP_S:
            self._outcome.busy_s += busy_s
            self._outcome.batch_sizes.append(size)
            self._outcome.latencies_s += [self._now_s - r.submitted_at for r in batch]
        for request in batch:
            self._step(request.outputs.group)

    def _step(self, group: int) -> None:
        reports_s = self._actors.reports_at(group, self._now_s)
        heapq.heappush(self._arrivals, (reports_s, group))


def make_request(group: int, num_envs: int, submitted_at: float) -> Request:
    """Returns a request whose only meaningful values are its sizes and times."""
    nothing = np.zeros(0, bool)
    outputs = EnvOutputs(
        group=group,
        observations=(),
        rewards=np.zeros(0, np.float32),
        is_first=nothing,
        terminated=nothing,
        truncated=nothing,
    )
    return Request(
        outputs=outputs,
        slots=np.zeros(num_envs, np.int64),
        is_session_start=False,
        is_eval=False,
        reply=lambda actions: None,
        submitted_at=submitted_at,
    )


def table(device: Device, make_actors: dict[str, Callable[[], Actors]]) -> Iterator[str]:
    """Yields the lines of a Markdown table: every fleet under every rule."""
    yield "| fleet | rule | env steps/s | batch | p50 ms | p99 ms | p99/forward | device us/step |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for name, make in make_actors.items():
        for rule in RULES:
            outcome = Simulation(make(), device, rule).run()
            env_steps = sum(outcome.batch_sizes)
            size = float(np.mean(outcome.batch_sizes))
            p50, p99 = np.percentile(outcome.latencies_s, (50, 99)) * 1000
            forward_ms = 1000 * (device.fixed_s + size * device.per_env_s)
            yield (
                f"| {name} | {rule.name} | {env_steps / (SIMULATED_S - WARM_UP_S):,.0f} "
                f"| {size:.0f} | {p50:.1f} | {p99:.1f} | {p99 / forward_ms:.1f} "
                f"| {1e6 * outcome.busy_s / env_steps:.0f} |"
            )


def modelled(device: Device) -> dict[str, Callable[[], Actors]]:
    """Returns functions that make the actors of every `Fleet` for this device, by name."""
    return {fleet.name: functools.partial(ModelActors, fleet) for fleet in FLEETS[device.name]}


def recorded(device: Device, path: Path = RECORDINGS) -> dict[str, Callable[[], Actors]]:
    """Returns functions that make actors from the recordings, by scenario."""
    return {
        name: functools.partial(RecordedActors, recording, copies=device.copies_of_recorded)
        for name, recording in load_recordings(path).items()
    }


def main() -> int:
    """Prints the tables; returns the exit code."""
    for device in DEVICES:
        print(
            f"{device.name}: a batch of n takes {1000 * device.fixed_s:g} ms "
            f"+ n * {1e6 * device.per_env_s:g} us\n"
        )
        print("\n".join(table(device, modelled(device))) + "\n")
        print("the same, with actors that report as recorded ones did:\n")
        print("\n".join(table(device, recorded(device))) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
