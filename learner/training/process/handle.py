"""The learner process's end of training in a process of its own. See `Training`."""

import contextlib
import logging
import multiprocessing
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from multiprocessing.synchronize import Lock
from multiprocessing.util import Finalize
from typing import Any

from learner.agents.base import Agent
from learner.checkpoint import Checkpoint
from learner.checkpoints.best import Score
from learner.concurrency.pipe_rpc import Caller, OtherProcessError, serve_calls
from learner.concurrency.stopping import Stopped
from learner.records import Completed
from learner.training.base import TrainingSetup
from learner.training.process.main import Ends, SharedMemory, run_trainer_process
from learner.training.process.unroll_ring import UnrollWriter
from learner.weights import PublishedWeights
from seed.errors import ConfigError, expected
from seed.logs import take_record
from seed.search_path import spawn, starting_processes
from seed.specs import EnvSpec

_LOG = logging.getLogger(__name__)


def _make_lock(context: SpawnContext) -> Lock:
    """Returns a lock for two processes. The system keeps it in /dev/shm.

    Raises:
      ConfigError: there is no room in /dev/shm, or it cannot be written.
    """
    try:
        with starting_processes():  # the first lock starts one that removes locks
            return context.Lock()
    except OSError as error:
        wanted = "thread, or a /dev/shm that has room for a lock and can be written"
        raise ConfigError(expected("train_in", wanted, f"process ({error})")) from error


class TrainerProcess:
    """Starts with the learner, so that the process is ready when the first actor comes."""

    weights: PublishedWeights

    def __init__(self, setup: TrainingSetup) -> None:
        """Starts the process. Raises ConfigError: the system has no lock for two processes."""
        hooks = setup.hooks
        self._on_failure = hooks.on_failure
        self._is_closing = False
        self._last_report: dict[str, float] = {}
        # Held here, because the process opens this memory only after it has started.
        self._progress = setup.progress
        # Not forked: this process has threads, and may hold a GPU.
        context = multiprocessing.get_context("spawn")
        calls, served_calls = context.Pipe()
        served_events, events = context.Pipe()
        self._unrolls, read_unrolls = context.Pipe()
        self._weights_lock = _make_lock(context)
        ends = Ends(
            served_calls, events, read_unrolls, self._weights_lock, setup.progress, setup.ranks
        )
        arguments = (setup.config, setup.run_dir, ends)
        self._process = spawn(context, run_trainer_process, arguments, name="trainer")
        _LOG.info("trainer is process %d", self._process.pid)
        for connection in (served_calls, events, read_unrolls):
            connection.close()  # else the pipes would stay open when the process ends
        # An interpreter that ends without `close` waits for this process, which ends with the
        # pipe.
        Finalize(self, calls.close, exitpriority=0)
        self._call = Caller(calls)
        functions = {
            "acting_state": hooks.acting_state,
            "finished": hooks.on_finished,
            "failed": hooks.on_failure,
            "log": take_record,
        }
        self._events = threading.Thread(
            target=self._serve_events, args=(served_events, functions), daemon=True
        )
        self._events.start()

    def build(self, spec: EnvSpec, agent: Agent, checkpoint: Checkpoint | None) -> None:
        """See `Training`; the process makes an agent of its own."""
        del agent
        path = None if checkpoint is None else checkpoint.path
        shared: SharedMemory = self._call("build", spec, path)
        self._writer = UnrollWriter(shared.ring, self._unrolls)
        self.weights = PublishedWeights.attach(shared.weights, self._weights_lock)

    def start(self) -> None:
        self._call("start")

    def put(self, completed: Completed) -> None:
        self._writer.put(completed)

    def report(self) -> dict[str, float]:
        """Returns metrics; after the process has ended, its last report once."""
        try:
            return self._call("report")
        except Stopped:
            report, self._last_report = self._last_report, {}
            return report

    def offer(self, score: Score) -> None:
        with contextlib.suppress(Stopped):
            self._call("offer", score)

    def stop(self) -> None:
        self.weights.close()
        try:
            self._call("stop")
        except Stopped:
            return

    def save(self) -> None:
        """Makes the process write a checkpoint.

        Raises:
          CheckpointError: the checkpoint could not be written.
          OtherProcessError: the process has ended.
        """
        try:
            self._call("save")
        except Stopped as error:
            raise OtherProcessError("the trainer process ended before it could save") from error

    def close(self) -> None:
        self._is_closing = True
        self._last_report = self.report()
        with contextlib.suppress(Stopped):
            self._call("close")
        self._call.close()
        self._process.join()
        self._events.join()

    def _serve_events(
        self, connection: Connection, functions: dict[str, Callable[..., Any]]
    ) -> None:
        serve_calls(connection, functions)
        if not self._is_closing:
            self._process.join()
            code = self._process.exitcode
            self._on_failure(OtherProcessError(f"the trainer process ended with code {code}"))
