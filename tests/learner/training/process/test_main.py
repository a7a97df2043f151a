"""The trainer process from within: its calls, and what a stop tells the learner process.

`run_trainer_process` runs on a thread of the test here, without the signals and the log of a
process. test_handle.py starts the process itself.
"""

import dataclasses
import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest
import torch

from learner.agents.registry import make_agent
from learner.concurrency.pipe_rpc import Caller, serve_calls
from learner.concurrency.stopping import Stopped
from learner.config.agent_config import VTraceConfig
from learner.config.run_config import LearnerConfig, NetworkConfig, RunConfig
from learner.config.run_dir import RunDir
from learner.records import Completed
from learner.reporting.progress import Progress
from learner.training.process import main
from learner.training.process.main import Ends, SharedMemory, run_trainer_process
from learner.training.process.unroll_ring import UnrollWriter
from learner.training.ranks import Ranks
from tests.learner.builders import TIMEOUT_S, env_spec, in_thread, random_unrolls, seeded

CONFIG = RunConfig(
    agent=VTraceConfig(unroll_length=2, batch_size=2),
    network=NetworkConfig(hidden_sizes=(8,)),
    learner=LearnerConfig(train_threads=1, torch_threads=1),
)
SPEC = env_spec()


@dataclasses.dataclass
class LearnerEnd:
    """The pipes of the learner process, and what the trainer told it."""

    call: Caller
    unrolls: Connection
    events: list[str]


@pytest.fixture
def learner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LearnerEnd]:
    """A trainer that serves calls until the test has ended."""
    monkeypatch.setattr(main.signal, "signal", lambda *_: None)
    monkeypatch.setattr(main, "forward_log", lambda _: None)
    monkeypatch.setattr(main, "log_stdout", lambda: None)
    calls, served_calls = multiprocessing.Pipe()
    served_events, events = multiprocessing.Pipe()
    unrolls, read_unrolls = multiprocessing.Pipe()
    lock = multiprocessing.get_context("spawn").Lock()
    ends = Ends(served_calls, events, read_unrolls, lock, Progress(), Ranks())
    with torch.random.fork_rng(devices=[]):
        served = in_thread(run_trainer_process, CONFIG, RunDir(tmp_path), ends)
        told: list[str] = []
        functions = {"finished": lambda: told.append("finished"), "failed": fail}
        in_thread(serve_calls, served_events, functions)
        call = Caller(calls)
        yield LearnerEnd(call, unrolls, told)
        call("close")
        call.close()
        served.result(TIMEOUT_S)


def fail(error: BaseException) -> None:
    """No thread is expected to raise."""
    raise AssertionError from error


def some_unrolls(count: int) -> Completed:
    """Returns unrolls as acting hands them on."""
    agent = make_agent(SPEC, CONFIG)
    state = agent.initial_state(count, torch.device("cpu"))
    unrolls = random_unrolls(SPEC, agent.unroll_length + 1, count, state, seeded())
    return Completed(unrolls, np.arange(count), np.zeros(count, bool))


def test_report_is_empty_before_anything_is_built(learner: LearnerEnd) -> None:
    """The learner reports from its start on, which is before its first actor comes."""
    assert learner.call("report") == {}
    learner.call("build", SPEC, None)
    assert learner.call("report") == {"queue/unrolls": 0}


def test_stop_tells_a_writer_of_unrolls(learner: LearnerEnd) -> None:
    """Its `put` raises, because the reader has closed the ring."""
    shared: SharedMemory = learner.call("build", SPEC, None)
    learner.call("start")
    writer = UnrollWriter(shared.ring, learner.unrolls)
    writer.put(some_unrolls(1))
    learner.call("stop")
    assert learner.events == ["finished"]
    with pytest.raises(Stopped):
        for _ in range(main.RING_PLACES + 1):
            writer.put(some_unrolls(1))
