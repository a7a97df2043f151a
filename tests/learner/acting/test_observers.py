"""Observers of steps: what they see, when they see it, and what their errors do to a run."""

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from learner.acting.batcher import Batcher, Request
from learner.acting.inference_thread import InferenceThread
from learner.acting.observers import ObservedStep, StepObserver
from learner.agents.base import ActInput
from learner.agents.vtrace import VTraceAgent
from learner.config.agent_config import VTraceConfig
from learner.config.run_config import InferenceConfig, NetworkConfig
from learner.records import Completed, map_tensors
from learner.reporting.counters import Counters
from learner.reporting.metrics import Metrics
from learner.weights import PublishedWeights
from seed.env_config import EnvConfig
from tests.learner.builders import TIMEOUT_S, env_outputs, env_spec, with_random_weights
from tests.support import counting_env
from tests.support.counting_agent import CountingAgent
from tests.support.harness import ActingHarness

CPU = torch.device("cpu")
SPEC = env_spec()
VERSION = 3


class Watcher:
    """Keeps copies of the steps that it sees, and logs when it saw them."""

    def __init__(self, log: list[str] | None = None) -> None:
        self.seen: list[ObservedStep] = []
        self.num_closed = 0
        self._log = [] if log is None else log

    def observe(self, step: ObservedStep) -> None:
        self._log.append("observed")
        steps = map_tensors(torch.clone, step.steps)
        values = None if step.values is None else step.values.clone()
        self.seen.append(step._replace(steps=steps, values=values))

    def close(self) -> None:
        self._log.append("closed")
        self.num_closed += 1


class Ignorant:
    """Accepts every step and does nothing with it."""

    def observe(self, step: ObservedStep) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""


class NoTraining:
    """Holds weights that never change, and drops unrolls."""

    def __init__(self, weights: PublishedWeights) -> None:
        self.weights = weights

    def put(self, completed: Completed) -> None:
        """Does nothing."""

    def stop(self) -> None:
        """Nothing waits."""


class Acted:
    """An inference thread of V-trace, from `start` to `close`."""

    def __init__(
        self,
        observers: Sequence[StepObserver],
        *,
        padded: bool = False,
        log: list[str] | None = None,
    ) -> None:
        self.agent = VTraceAgent(SPEC, NetworkConfig(), VTraceConfig(unroll_length=2))
        self.network = with_random_weights(self.agent.build_network())
        self.answers: dict[int, np.ndarray] = {}
        """The actions of the last answer, by the first slot of its request."""
        self._log = [] if log is None else log
        weights = PublishedWeights(self.agent.build_network(), self.agent.build_network())
        weights.publish(self.network, VERSION)
        config = InferenceConfig(
            cuda_graphs="on" if padded else "off", max_inference_batch=16, min_fill=0
        )
        self._failures: list[BaseException] = []
        self._answered = threading.Semaphore(0)
        self.batcher = Batcher(config)
        self.thread = InferenceThread(
            spec=SPEC,
            agent=self.agent,
            config=config,
            training=NoTraining(weights),
            batcher=self.batcher,
            counters=Counters(),
            metrics=Metrics(),
            device=CPU,
            rng_seed=0,
            on_failure=self._failures.append,
            observers=observers,
        )

    def submit(self, *slots: int, value: float, is_eval: bool = False) -> None:
        """Submits a request of the environments in `slots`."""

        def reply(actions: np.ndarray) -> None:
            self._log.append("answered")
            self.answers[slots[0]] = actions.copy()
            self._answered.release()

        self.batcher.submit(
            Request(
                outputs=env_outputs(len(slots), value=value),
                slots=np.array(slots),
                is_session_start=False,
                is_eval=is_eval,
                reply=reply,
                submitted_at=0.0,
            )
        )

    def wait_for_answers(self, count: int) -> None:
        """Returns once `count` more requests have been answered."""
        for _ in range(count):
            assert self._answered.acquire(timeout=TIMEOUT_S)

    def close(self) -> None:
        """Ends the thread; an error on the thread fails the test."""
        self.batcher.close()
        self.thread.stop()
        self.thread.join()
        assert not self._failures

    def recomputed(self, step: ObservedStep) -> tuple[Tensor, Tensor]:
        """Returns logits [N, A] and values [N] of an observed step."""
        state = self.agent.initial_state(len(step.slots), CPU)
        inputs = ActInput(step.steps.rows, state, torch.from_numpy(step.slots))
        with torch.no_grad():
            output = self.agent.act(self.network, inputs, torch.Generator())
        assert output.values is not None
        return output.policy_outputs["logits"], output.values


@pytest.mark.parametrize("padded", [False, True])
def test_observer_sees_every_answered_step(padded: bool) -> None:
    """It sees the slots, the observations, the answers, and the network's outputs and values."""
    watcher = Watcher()
    acted = Acted([watcher], padded=padded)
    # Both requests come before the thread starts, so that they are in one batch.
    acted.submit(0, 1, 2, value=0.5)
    acted.submit(7, 5, value=-2.0)
    acted.thread.start()
    acted.wait_for_answers(2)
    answers = np.concatenate([acted.answers[0], acted.answers[7]])
    acted.submit(1, value=4.0)
    acted.wait_for_answers(1)
    acted.close()
    first, second = watcher.seen
    assert first.slots.tolist() == [0, 1, 2, 7, 5]
    sent = torch.tensor([0.5, 0.5, 0.5, -2.0, -2.0])
    assert torch.equal(first.steps.rows.observations[0], sent.view(1, 5, 1).expand(1, 5, 3))
    assert torch.equal(first.steps.rows.rewards, sent.view(1, 5))
    assert first.steps.actions.tolist() == [answers.tolist()]
    assert second.slots.tolist() == [1]
    assert second.steps.rows.rewards.tolist() == [[4.0]]
    # The previous action is the answer to the step before.
    assert second.steps.rows.previous_actions.item() == answers[1]
    for step in watcher.seen:
        logits, values = acted.recomputed(step)
        torch.testing.assert_close(step.steps.policy_outputs["logits"][0], logits)
        torch.testing.assert_close(step.values, values)
        assert (step.steps.policy_versions == VERSION).all()
        assert step.is_eval is None


def test_observer_is_told_which_environments_only_evaluate() -> None:
    """The observer also sees evaluation steps, which are not stored."""
    watcher = Watcher()
    acted = Acted([watcher])
    acted.submit(0, 1, value=1.0)
    acted.submit(2, value=1.0, is_eval=True)
    acted.thread.start()
    acted.wait_for_answers(2)
    acted.close()
    (step,) = watcher.seen
    assert step.is_eval is not None
    assert step.is_eval.tolist() == [False, False, True]
    assert step.steps.actions.shape == (1, 3)


def test_observers_are_called_after_the_answers_in_turn_and_closed_once() -> None:
    """Actors do not wait for observers, and no step comes after an observer is closed."""
    log: list[str] = []
    watchers = [Watcher(log) for _ in range(2)]
    acted = Acted(watchers, log=log)
    acted.submit(0, 1, value=0.0)
    acted.submit(2, value=0.0)
    acted.thread.start()
    acted.wait_for_answers(2)
    assert [watcher.num_closed for watcher in watchers] == [0, 0]
    acted.close()
    assert log == ["answered", "answered", "observed", "observed", "closed", "closed"]


def test_no_step_is_made_without_an_observer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without observers does no work for them."""
    made: list[object] = []
    monkeypatch.setattr("learner.acting.inference.ObservedStep", lambda *parts: made.append(parts))
    acted = Acted([])
    acted.thread.start()
    acted.submit(0, value=0.0)
    acted.wait_for_answers(1)
    acted.close()
    assert made == []
    # With an observer one step is made.
    acted = Acted([Ignorant()])
    acted.thread.start()
    acted.submit(0, value=0.0)
    acted.wait_for_answers(1)
    acted.close()
    assert len(made) == 1


class Failing(Watcher):
    """Raises at its third step."""

    def observe(self, step: ObservedStep) -> None:
        super().observe(step)
        if len(self.seen) == 3:
            raise RuntimeError("no room for the film")


def test_error_of_an_observer_ends_the_service(tmp_path: Path) -> None:
    """The run raises the observer's error; the observer sees no further step, and is closed."""
    failing = Failing()
    env = EnvConfig(env_id=counting_env.ENV_ID)
    with (
        pytest.raises(RuntimeError, match="no room for the film"),
        ActingHarness(tmp_path, env, lambda spec: CountingAgent(4), observers=[failing]) as harness,
        harness.actor("--envs-per-group", "1", "--num-groups", "1"),
    ):
        harness.wait_for_more(1000)
    assert len(failing.seen) == 3
    assert failing.num_closed == 1
