"""One batched act: what is loaded, in which order things happen, and what is stored."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from learner.acting.batcher import Request
from learner.acting.graph_runner import PlainRunner
from learner.acting.inference import InferenceEngine, Staging
from learner.agents.base import ActInput, ActOutput
from learner.config.torchrun import Place
from learner.records import Completed
from learner.reporting.counters import Counters
from learner.reporting.metrics import Metrics
from learner.weights import PublishedWeights
from seed.wire import EnvOutputs, Episode
from tests.learner.builders import GEAR, SCREEN, SPEED, env_outputs, env_spec
from tests.support.fake_agent import FakeAgent

CPU = torch.device("cpu")


class OneActionAgent(FakeAgent):
    """Chooses action 1 everywhere, and keeps the slots that it is told of."""

    batch_size = 0

    def __init__(self, unroll_length: int) -> None:
        self.unroll_length = unroll_length
        self.slots: list[list[int]] = []

    def act(self, network: nn.Module, inputs: ActInput, generator: torch.Generator) -> ActOutput:
        self.slots.append(inputs.slots.tolist())
        return ActOutput(torch.ones(len(inputs.slots), dtype=torch.int64), {}, {})


class Acting:
    """An inference engine of `OneActionAgent`, called on the thread of the test."""

    def __init__(self, *, unroll_length: int = 1, place: Place | None = None) -> None:
        self.agent = OneActionAgent(unroll_length)
        self.counters = Counters()
        self.emitted: list[Completed] = []
        self.log: list[str] = []
        self.metrics = metrics = Metrics()
        weights = PublishedWeights(nn.Linear(1, 1), nn.Linear(1, 1))
        weights.publish(nn.Linear(1, 1), 0)
        self._clock = metrics.clock("inference")
        self._engine = InferenceEngine(
            spec=env_spec(),
            agent=self.agent,
            weights=weights,
            emit=self._emit,
            counters=self.counters,
            metrics=metrics,
            runner=PlainRunner(self.agent, torch.Generator()),
            device=CPU,
            place=place,
        )

    def process(self, *requests: Request) -> None:
        """Acts on one batch."""
        self._engine.process(list(requests), self._clock)

    def request(
        self,
        *slots: int,
        value: float = 0.0,
        is_session_start: bool = False,
        is_eval: bool = False,
        episodes: tuple[Episode, ...] = (),
        failures: int = 0,
    ) -> Request:
        """Returns a request whose observations and rewards all are `value`."""
        return Request(
            outputs=dataclasses.replace(
                env_outputs(len(slots), value=value), episodes=episodes, failures=failures
            ),
            slots=np.array(slots),
            is_session_start=is_session_start,
            is_eval=is_eval,
            reply=lambda actions: self.log.append(f"answered {len(actions)}"),
            submitted_at=0.0,
        )

    def _emit(self, completed: Completed) -> None:
        self.log.append("emitted")
        self.emitted.append(completed)


def test_every_request_is_answered_before_an_unroll_is_handed_on() -> None:
    """A full queue of unrolls pauses acting, and no actor waits for its answer meanwhile."""
    acting = Acting()
    for _ in range(2):
        acting.process(acting.request(0, 1), acting.request(2))
    assert acting.log == ["answered 2", "answered 1", "answered 2", "answered 1", "emitted"]


def test_evaluation_is_answered_and_leaves_nothing_to_train_on() -> None:
    """Its rows are not stored and its env steps are not counted, alone or beside training."""
    acting = Acting()
    game = Episode(env=0, episode_return=3.0, length=7)
    for _ in range(2):
        acting.process(acting.request(0, 1, is_eval=True, episodes=(game,)))
    assert acting.log == ["answered 2", "answered 2"]
    for _ in range(2):
        acting.process(acting.request(0, is_eval=True), acting.request(4, 3))
    (completed,) = acting.emitted
    assert completed.slots.tolist() == [4, 3]
    assert acting.counters.env_steps == 4


def test_failures_of_environments_are_counted_and_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The learner's log sends its reader to the actor's, which says which one and why."""
    acting = Acting()
    acting.process(acting.request(0, 1))
    assert "envs/failed" not in acting.metrics.drain()
    acting.process(acting.request(0, 1, failures=2), acting.request(2, failures=1))
    assert acting.metrics.drain()["envs/failed"] == 3
    (record,) = caplog.records
    assert "an environment failed and the run goes on; its actor's log says which" in record.message


def test_smallest_and_largest_reward_are_reported() -> None:
    """Those of evaluation do not count, nor the 0 that stands where a game starts."""
    acting = Acting()
    starts = acting.request(5, value=-9.0)
    starts.outputs.is_first[:] = True
    acting.process(acting.request(0, 1, value=2.0), acting.request(2, value=3.0), starts)
    acting.process(acting.request(0, value=7.0, is_eval=True))
    report = acting.metrics.drain()
    assert (report["reward/min"], report["reward/max"]) == (2, 3)
    acting.process(acting.request(0, value=7.0, is_eval=True))
    assert "reward/min" not in acting.metrics.drain()


def test_session_start_clears_the_open_unroll_of_its_own_slots() -> None:
    """Rows of the actor before are dropped, and those of another actor stay."""
    acting = Acting(unroll_length=2)
    acting.process(acting.request(0, value=1.0), acting.request(1, value=1.0))
    acting.process(acting.request(0, value=2.0), acting.request(1, value=2.0))
    for value in (3.0, 4.0, 5.0):
        starts = value == 3.0
        acting.process(
            acting.request(0, value=value, is_session_start=starts),
            acting.request(1, value=value),
        )
    rewards = {
        slot: completed.unrolls.steps.rows.rewards[:, column].tolist()
        for completed in acting.emitted
        for column, slot in enumerate(completed.slots.tolist())
        if not completed.follows[column]
    }
    assert rewards == {1: [1.0, 2.0, 3.0], 0: [3.0, 4.0, 5.0]}


def test_no_two_ranks_tell_their_agents_of_the_same_slot() -> None:
    """Slot i of rank r among n is slot i * n + r of all."""
    slots = []
    for rank in range(2):
        acting = Acting(place=Place(rank=rank, size=2))
        acting.process(acting.request(0, 1, 2))
        slots += acting.agent.slots
    assert slots == [[0, 2, 4], [1, 3, 5]]


def outputs(make: Callable[[int], np.ndarray], num_envs: int) -> EnvOutputs:
    """Returns a step of a screen, a speed and a gear; `make` draws `num_envs` flags."""
    screen = np.full((num_envs, 5, 6), num_envs, np.uint8)
    speed = np.full((num_envs, 3), num_envs / 2, np.float32)
    return EnvOutputs(
        group=0,
        observations=(screen, speed, np.arange(num_envs)),
        rewards=np.arange(num_envs, dtype=np.float32) - num_envs,
        is_first=make(num_envs),
        terminated=make(num_envs),
        truncated=make(num_envs),
    )


@pytest.mark.parametrize("sizes", [[(2, 1), (3,)], [(4,), (1, 1), (2, 3)]])
def test_staging_holds_the_newest_batch_alone(sizes: list[tuple[int, ...]]) -> None:
    """Its buffers are reused for batches of any size, and requests keep their order."""
    rng = np.random.default_rng(0)
    staging = Staging(env_spec(SCREEN, SPEED, GEAR), CPU)
    acting = Acting()
    for batch_sizes in sizes:
        steps = [outputs(lambda n: rng.random(n) < 0.5, size) for size in batch_sizes]
        requests = [acting.request(*range(size)) for size in batch_sizes]
        rows = staging.load(
            [
                dataclasses.replace(request, outputs=step)
                for request, step in zip(requests, steps, strict=True)
            ]
        )
        for leaf, got in enumerate(rows.observations):
            expected = np.concatenate([step.observations[leaf] for step in steps])[np.newaxis]
            assert torch.equal(got, torch.from_numpy(expected))
        for name in ("rewards", "is_first", "terminated", "truncated"):
            expected = np.concatenate([getattr(step, name) for step in steps])[np.newaxis]
            assert torch.equal(getattr(rows, name), torch.from_numpy(expected)), name
