"""A trainer far slower than acting: what waits for it is bounded in number and in age.

A whole learner and a real actor; the trainer makes an update only once acting has come to
a halt, which is as slow as a trainer can be. docs/lag.md states the bounds checked here.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from learner.config.agent_config import R2D2Config, ReplayConfig, VTraceConfig
from learner.config.run_config import ActorConfig, LearnerConfig, NetworkConfig, RunConfig
from learner.config.run_dir import RunDir
from learner.experience.replay.replay import TOLERANCE_BATCHES
from learner.records import Completed, Unrolls, select_unrolls
from learner.runtime import Learner
from learner.training.local import LocalTraining
from learner.training.process.handle import TrainerProcess
from learner.training.process.main import RING_PLACES
from seed.env_config import EnvConfig
from seed.security import PLAIN_TEXT
from tests.support.counting_env import ENV_ID
from tests.support.gated_trainer import Gate, fingerprints
from tests.support.harness import TIMEOUT_S, actor_process

NUM_ENVS = 8
BATCH_SIZE = 3
NUM_UPDATES = 20
# As long as nothing may change for acting to be taken to stand still. If it did not, an
# update is let through early, and less is put to the test.
_STILL_S = 0.2

VTRACE = VTraceConfig(unroll_length=5, batch_size=BATCH_SIZE, queue_batches=2)
REPLAY = ReplayConfig(replay_capacity=40, replay_min_size=10, samples_per_insert=0.5)
R2D2 = R2D2Config(sequence_length=5, burn_in=2, batch_size=BATCH_SIZE, head_size=8, replay=REPLAY)

TrainIn = Literal["thread", "process"]


class Emitted:
    """All unrolls that acting has handed on, and those that its thread is about to."""

    def __init__(self) -> None:
        self.all: list[tuple[int, Unrolls, bool]] = []
        """(slot, unroll, whether it follows the slot's last), in order."""
        self.largest = 0
        """Most unrolls that were completed at once."""
        self.is_inside = False

    def recording(self, put: Callable[[Any, Completed], None]) -> Callable[[Any, Completed], None]:
        """Returns a `put` that also records its argument."""

        def recorded(training: Any, completed: Completed) -> None:
            unrolls, count = completed.unrolls, completed.unrolls.num_unrolls
            for i in range(count):
                one = select_unrolls(unrolls, i, i + 1)
                self.all.append((int(completed.slots[i]), one, bool(completed.follows[i])))
            self.largest = max(self.largest, count)
            self.is_inside = True
            put(training, completed)
            self.is_inside = False

        return recorded


class SlowRun:
    """A learner with the gate before its trainer, and one actor."""

    def __init__(self, config: RunConfig, gate: Gate, emitted: Emitted, directory: Path) -> None:
        self.gate = gate
        self.emitted = emitted
        self.learner = Learner(
            config, run_dir=RunDir(directory / "run"), device=torch.device("cpu")
        )
        self.address = f"unix:{directory}/learner.sock"
        self.lag_max = 0.0
        self.report: dict[str, float] = {}

    @property
    def num_held(self) -> int:
        """Returns how many unrolls are between acting and trainer, without those at the gate."""
        taken = sum(len(batch) for batch in self.gate.arrived)
        return len(self.emitted.all) - taken

    def look(self) -> None:
        """Keeps what the learner reports."""
        self.report = self.learner.report()
        self.lag_max = max(self.lag_max, self.report.get("policy/lag_max", 0.0))

    def wait_until_acting_stands_still(self) -> None:
        """Returns once nothing has moved for a while, with acting inside `put`."""
        give_up_at = time.monotonic() + TIMEOUT_S
        seen, since = None, time.monotonic()
        while time.monotonic() < give_up_at:
            now = (self.emitted.is_inside, len(self.emitted.all), self.gate.see())
            if now != seen:
                seen, since = now, time.monotonic()
            is_halt = self.emitted.is_inside and self.gate.arrived
            if is_halt and time.monotonic() - since >= _STILL_S:
                return
            assert self.learner.failure is None
            threading.Event().wait(0.01)
        raise AssertionError(f"acting does not stand still: {seen}")

    def make_updates(self, check: Callable[[], None]) -> None:
        """Lets updates through, each once acting stands still, and calls `check` before each."""
        for _ in range(NUM_UPDATES):
            self.wait_until_acting_stands_still()
            self.look()
            check()
            num_arrived = self.gate.see()
            self.gate.let_one_through()
            self._wait_for_arrivals(num_arrived + 1)
        self.look()

    def _wait_for_arrivals(self, count: int) -> None:
        give_up_at = time.monotonic() + TIMEOUT_S
        while self.gate.see() < count:
            assert time.monotonic() < give_up_at, "no further batch came to the trainer"
            threading.Event().wait(0.01)


Start = Callable[[VTraceConfig | R2D2Config, TrainIn], SlowRun]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts a run, and ends it and its actor after the test."""
    gate, emitted = Gate(), Emitted()
    gate.attach(monkeypatch)
    for cls in (LocalTraining, TrainerProcess):
        monkeypatch.setattr(cls, "put", emitted.recording(cls.put))
    runs: list[SlowRun] = []
    actors = []

    def start_run(agent: VTraceConfig | R2D2Config, train_in: TrainIn) -> SlowRun:
        config = RunConfig(
            env=EnvConfig(env_id=ENV_ID),
            actor=ActorConfig(envs_per_group=NUM_ENVS // 2, num_groups=2),
            network=NetworkConfig(hidden_sizes=(8,), lstm_size=4),
            agent=agent,
            learner=LearnerConfig(train_in=train_in),
        )
        run = SlowRun(config, gate, emitted, tmp_path)
        runs.append(run)
        run.learner.start((run.address,), PLAIN_TEXT)
        actors.append(actor_process(run.address))
        return run

    yield start_run
    gate.open()
    for actor in actors:
        actor.kill()
        actor.wait()
    for run in runs:
        run.learner.close()
        assert run.learner.failure is None


@pytest.mark.parametrize(("train_in", "sample_reuse"), [("thread", 2), ("process", 1)])
def test_what_waits_for_a_slow_vtrace_trainer_is_bounded(
    start: Start, train_in: TrainIn, sample_reuse: int
) -> None:
    """It is bounded in number and age; every unroll is trained on in order, every step counted."""
    config = VTraceConfig(
        unroll_length=VTRACE.unroll_length,
        batch_size=BATCH_SIZE,
        queue_batches=VTRACE.queue_batches,
        sample_reuse=sample_reuse,
    )
    run = start(config, train_in)

    def check() -> None:
        # In the queue, which one put may overshoot; in the hands of who waits for it.
        most = config.queue_batches * BATCH_SIZE + 2 * run.emitted.largest
        if train_in == "process":  # In the ring, and in the hands of the receiver thread.
            most += RING_PLACES + run.emitted.largest
        assert run.num_held < most
        assert run.report["queue/unrolls"] >= config.queue_batches * BATCH_SIZE
        _assert_every_step_is_counted(run, config.unroll_length)

    run.make_updates(check)
    under_way = 2 * RING_PLACES if train_in == "process" else 0
    lag_bound = config.queue_batches + (2 * NUM_ENVS + under_way) / BATCH_SIZE + sample_reuse + 1
    assert config.queue_batches <= run.lag_max <= lag_bound
    trained = [number for batch in run.gate.arrived for number in batch]
    made = [number for _, one, _ in run.emitted.all for number in fingerprints(one)]
    assert trained == made[: len(trained)]


def _assert_every_step_is_counted(run: SlowRun, unroll_length: int) -> None:
    """The unrolls of a slot follow one another, and its open one has fewer than T rows."""
    rows = 0
    for slot in range(NUM_ENVS):
        unrolls = [one for at, one, _ in run.emitted.all if at == slot]
        follows = [each for at, _, each in run.emitted.all if at == slot]
        assert all(follows[1:])
        for one, following in zip(unrolls, unrolls[1:], strict=False):
            last, first = (x.steps.rows.observations[0][i] for x, i in ((one, -1), (following, 0)))
            assert torch.equal(last, first)
        rows += sum(int((~one.steps.rows.is_first[1:]).sum()) for one in unrolls)
    steps = run.learner.counters.env_steps
    # Slots start out of phase, so each leaves out fewer than T rows once.
    assert rows <= steps < rows + 2 * NUM_ENVS * unroll_length


@pytest.mark.parametrize("train_in", ["thread", "process"])
def test_acting_is_no_further_ahead_of_a_slow_r2d2_trainer_than_its_ratio_allows(
    start: Start, train_in: TrainIn
) -> None:
    """The replay holds its capacity at most, and no sample is older than that."""
    run = start(R2D2, train_in)
    ratio, period = REPLAY.samples_per_insert, R2D2.period
    # Blocks of an environment before its first whole sequence.
    blocks_first = math.ceil(R2D2.num_rows / period)
    under_way = 2 * RING_PLACES if train_in == "process" else 0

    def check() -> None:
        sampled = BATCH_SIZE * (run.gate.see() + 3)  # Two are loaded ahead, and one is being drawn.
        owed = max(TOLERANCE_BATCHES * BATCH_SIZE, ratio * run.emitted.largest)
        inserted = REPLAY.replay_min_size + (sampled + owed) / ratio
        in_hand = run.emitted.largest + under_way
        assert len(run.emitted.all) <= inserted + NUM_ENVS * blocks_first + in_hand
        assert run.report["replay/sequences"] <= REPLAY.replay_capacity
        _assert_every_step_is_counted(run, period)

    run.make_updates(check)
    inserts = REPLAY.replay_capacity + (blocks_first + 1) * NUM_ENVS + under_way
    lag_bound = ratio * inserts / BATCH_SIZE + TOLERANCE_BATCHES + 3
    assert 1 <= run.lag_max <= lag_bound
