"""An ingress process: a gRPC server whose learner runs in another process, the parent.

It never imports torch. It ends when its parent closes the stop pipe, or dies. It ignores
signals, because the parent handles them: in a terminal Ctrl-C reaches both processes.
"""

from seed import quiet_grpc  # noqa: F401, I001 (before anything imports gRPC)

import contextlib
import signal
import threading
from multiprocessing.connection import Connection
from typing import NamedTuple

from learner.concurrency.pipe_rpc import Caller, portable
from learner.concurrency.stop_request import STOP_SIGNALS
from learner.serving.ingress.backend import OrderedCaller, RemoteBackend
from learner.serving.limits import Limits
from learner.serving.server import ServerThread
from learner.serving.session import Timeouts
from seed.allocator import keep_freed_memory
from seed.errors import SeedError
from seed.logs import forward_log
from seed.security import Security
from seed.stdout import log_stdout


class Settings(NamedTuple):
    """The settings with which a process serves."""

    addresses: tuple[str, ...]
    security: Security
    timeouts: Timeouts
    limits: Limits


class Ends(NamedTuple):
    """The process's ends of the pipes that it gets at its start."""

    calls: Connection
    """Calls that the learner answers at once."""
    admissions: Connection
    """Calls that the learner may take seconds to answer."""
    steps: Connection
    answers: Connection
    stop: Connection
    """A message says that the run is complete. Closed by the learner when it stops, and by the
    system when the learner dies."""


def run_ingress_process(settings: Settings, ends: Ends) -> None:
    """Serves actors until the learner stops or dies."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    keep_freed_memory()
    calls, admissions = OrderedCaller(ends.calls), Caller(ends.admissions)
    forward_log(lambda record: calls.tell("log", record))
    log_stdout()

    def make_backend() -> RemoteBackend:
        calls.tell("watch_server", threading.get_native_id())
        return RemoteBackend(calls, admissions, ends.steps, ends.answers)

    server = ServerThread(
        make_backend,
        settings.addresses,
        lambda error: calls.tell("failed", portable(error)),
        settings.security,
        settings.timeouts,
        settings.limits,
        shares_ports=True,
    )
    try:
        calls.tell("listening", server.start())
    except SeedError as error:
        calls.tell("failed", error)
    with contextlib.suppress(EOFError, OSError):
        while True:
            ends.stop.recv_bytes()
            server.complete()
    server.close()
