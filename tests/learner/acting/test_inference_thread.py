"""The inference thread acts on its own stream, and gives unrolls to the stream that trains."""

import threading
from typing import NamedTuple

import numpy as np
import pytest
import torch

from learner.acting.batcher import Batcher, Request
from learner.acting.graph_runner import PaddedRunner, PlainRunner
from learner.acting.inference_thread import InferenceThread, make_runner
from learner.agents.vtrace import VTraceAgent
from learner.config.agent_config import VTraceConfig
from learner.config.run_config import InferenceConfig, NetworkConfig
from learner.records import Completed, tensors_of
from learner.reporting.counters import Counters
from learner.reporting.metrics import Metrics
from learner.weights import PublishedWeights
from tests.learner.builders import TIMEOUT_S, env_outputs, env_spec
from tests.support.clocked_streams import ACTING, ClockedStreams

CPU = torch.device("cpu")


class Put(NamedTuple):
    """Unrolls that training received, and the stream that they were given on."""

    completed: Completed
    stream: str


class FakeTraining:
    """Takes unrolls, and keeps the first of them."""

    def __init__(self, weights: PublishedWeights, streams: ClockedStreams) -> None:
        self.weights = weights
        self.put_first = threading.Event()
        self.first: Put | None = None
        self._streams = streams

    def put(self, completed: Completed) -> None:
        if self.first is None:
            self.first = Put(completed, self._streams.current)
        self.put_first.set()

    def stop(self) -> None:
        """Nothing waits."""


def make_thread(
    agent: VTraceAgent,
    config: InferenceConfig,
    training: FakeTraining,
    batcher: Batcher,
    failures: list[BaseException],
) -> InferenceThread:
    """Returns the acting side of an agent, on the CPU, not started."""
    return InferenceThread(
        spec=env_spec(),
        agent=agent,
        config=config,
        training=training,
        batcher=batcher,
        counters=Counters(),
        metrics=Metrics(),
        device=CPU,
        rng_seed=0,
        on_failure=failures.append,
    )


@pytest.mark.parametrize("cuda_graphs", ["off", "on"])
def test_unrolls_are_given_to_the_stream_that_trains(
    monkeypatch: pytest.MonkeyPatch, cuda_graphs: str
) -> None:
    """The acting stream gives all their tensors to training before `put` is called."""
    streams = ClockedStreams()
    monkeypatch.setattr("learner.acting.inference_thread.make_streams", lambda device: streams)
    spec = env_spec()
    agent = VTraceAgent(
        spec, NetworkConfig(lstm_size=4), VTraceConfig(unroll_length=1, batch_size=2)
    )
    weights = PublishedWeights(agent.build_network(), agent.build_network(), streams)
    weights.publish(agent.build_network(), 0)
    inference = InferenceConfig(cuda_graphs=cuda_graphs, max_inference_batch=16)  # pyright: ignore[reportArgumentType]
    batcher, training, failures = Batcher(inference), FakeTraining(weights, streams), []
    acting = make_thread(agent, inference, training, batcher, failures)
    acting.start()
    answered = threading.Semaphore(0)
    for _ in range(2):
        step = Request(
            outputs=env_outputs(3),
            slots=np.arange(3),
            is_session_start=False,
            is_eval=False,
            reply=lambda actions: answered.release(),
            submitted_at=0.0,
        )
        batcher.submit(step)
        assert answered.acquire(timeout=TIMEOUT_S)
    assert training.put_first.wait(TIMEOUT_S)
    batcher.close()
    acting.stop()
    acting.join()
    assert not failures
    assert training.first is not None
    unrolls, stream = training.first.completed.unrolls, training.first.stream
    assert stream == ACTING
    assert {id(x) for x in tensors_of(unrolls)} <= {id(x) for x in streams.given}


@pytest.mark.parametrize(
    ("cuda_graphs", "expected"), [("auto", PlainRunner), ("off", PlainRunner), ("on", PaddedRunner)]
)
def test_cpu_pads_batches_only_if_told_to(cuda_graphs: str, expected: type) -> None:
    """On a CPU padded batches would cost time and gain nothing."""
    agent = VTraceAgent(env_spec(), NetworkConfig(), VTraceConfig())
    config = InferenceConfig(cuda_graphs=cuda_graphs)  # pyright: ignore[reportArgumentType]
    assert isinstance(make_runner(env_spec(), agent, torch.Generator(), config), expected)


def test_random_state_of_another_kind_of_device_is_not_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A GPU's generator has a state of 16 bytes. A run that it acted in goes on from the seed."""
    agent = VTraceAgent(env_spec(), NetworkConfig(), VTraceConfig())
    weights = PublishedWeights(agent.build_network(), agent.build_network())
    config, streams = InferenceConfig(), ClockedStreams()
    acting = make_thread(agent, config, FakeTraining(weights, streams), Batcher(config), [])
    fresh = acting.state_dict()["rng"]["inference"]
    acting.load_rng(torch.zeros(16, dtype=torch.uint8))
    assert torch.equal(acting.state_dict()["rng"]["inference"], fresh)
    assert "another kind of device" in caplog.text
    drawn = torch.Generator().manual_seed(5).get_state()
    acting.load_rng(drawn)
    assert torch.equal(acting.state_dict()["rng"]["inference"], drawn)
