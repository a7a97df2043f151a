"""The trainer process: a `LocalTraining`, and the calls by which the learner process uses it.

The process ends when its parent closes the pipe, or dies. It ignores signals: in a terminal
Ctrl-C reaches both processes, and so does its closing. The parent answers them.
"""

import contextlib
import signal
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Lock
from pathlib import Path
from typing import Any, NamedTuple

from learner.agents.registry import make_agent
from learner.agents.steps import example_step
from learner.checkpoint import load_checkpoint
from learner.checkpoints.best import Score
from learner.concurrency.pipe_rpc import Caller, portable, serve_calls
from learner.concurrency.stop_request import STOP_SIGNALS
from learner.concurrency.stopping import Stopped
from learner.concurrency.threads import start_thread
from learner.config.run_config import RunConfig
from learner.config.run_dir import RunDir
from learner.device.setup import set_up_torch
from learner.reporting.metrics import Metrics
from learner.reporting.progress import Progress
from learner.training.base import LearnerHooks, TrainingSetup
from learner.training.local import LocalTraining
from learner.training.process.unroll_ring import UnrollReader, UnrollRing, make_unroll_ring
from learner.training.ranks import Ranks
from learner.weights import WeightCopies
from seed.logs import forward_log
from seed.specs import EnvSpec
from seed.stdout import log_stdout

# Unrolls under way between the processes: enough to hide their copying, few compared with the
# lag that the queue behind the ring allows.
RING_PLACES = 16


class Ends(NamedTuple):
    """The process's ends of its pipes, and the objects that it shares with its parent."""

    calls: Connection
    """Calls by the learner process, served here."""
    events: Connection
    """Calls to the learner process."""
    unrolls: Connection
    weights_lock: Lock
    progress: Progress
    ranks: Ranks


class SharedMemory(NamedTuple):
    """Memory that the learner process maps once the environment's spec is known."""

    ring: UnrollRing
    weights: WeightCopies


def run_trainer_process(config: RunConfig, run_dir: RunDir, ends: Ends) -> None:
    """Serves the learner process until that closes the pipe or ends."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    training = _Training(config, run_dir, ends)
    serve_calls(
        ends.calls,
        {
            "build": training.build,
            "start": training.start,
            "report": training.report,
            "offer": training.offer,
            "stop": training.stop,
            "save": training.save,
            "close": training.close,
        },
    )


class _Training:
    """The functions that the learner process calls, on the main thread."""

    def __init__(self, config: RunConfig, run_dir: RunDir, ends: Ends) -> None:
        self._config = config
        self._ends = ends
        self._events = Caller(ends.events)
        self._metrics = Metrics()
        forward_log(lambda record: self._tell("log", record))
        log_stdout()
        learner = config.learner
        self._device = set_up_torch(
            "cpu", torch_threads=learner.torch_threads, train_threads=learner.train_threads
        )
        hooks = LearnerHooks(
            acting_state=lambda: self._events("acting_state"),
            on_finished=lambda: self._tell("finished"),
            on_failure=self._fail,
        )
        setup = TrainingSetup(config, ends.progress, ends.ranks, run_dir, hooks)
        self._training = LocalTraining(setup, self._metrics, self._device)

    def build(self, spec: EnvSpec, checkpoint: Path | None) -> SharedMemory:
        """Builds the training for an environment; raises as `Training.build` does."""
        agent = make_agent(spec, self._config)
        loaded = load_checkpoint(checkpoint) if checkpoint is not None else None
        self._training.build(spec, agent, loaded)
        example = example_step(spec, agent)
        ring = make_unroll_ring(example, unroll_length=agent.unroll_length, num_places=RING_PLACES)
        self._reader = UnrollReader(ring, self._ends.unrolls)
        return SharedMemory(ring, self._training.weights.share(self._ends.weights_lock))

    def start(self) -> None:
        """Starts all threads."""
        self._training.start()
        start_thread("receiver", self._receive, self._fail)

    def report(self) -> dict[str, float]:
        """Returns the metrics since the last report, and the present ones of the experience."""
        return self._metrics.drain() | self._training.report()

    def offer(self, score: Score) -> None:
        """Takes a new score; see `Training`."""
        self._training.offer(score)

    def stop(self) -> None:
        """Ends the threads; the receiver closes the ring, so a waiting writer raises Stopped."""
        self._training.weights.close()
        self._training.stop()

    def save(self) -> None:
        """Writes a checkpoint. Raises CheckpointError."""
        self._training.save()

    def close(self) -> None:
        """Ends what is left, before the process does."""
        self._training.close()

    def _receive(self) -> None:
        try:
            while True:
                self._training.put(self._reader.get())
        except Stopped:
            # Closed only here: two threads that close one connection at the same time could
            # close a descriptor that is another's by then.
            self._reader.close()

    def _fail(self, error: BaseException) -> None:
        self._tell("failed", portable(error))

    def _tell(self, name: str, *arguments: Any) -> None:
        """Calls the learner process; if that has ended, drops the call, as this one ends too."""
        with contextlib.suppress(Stopped):
            self._events(name, *arguments)
