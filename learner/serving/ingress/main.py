"""An ingress process: a gRPC server, and the learner behind it in another process.

It never imports torch. It ends when its parent is done with it, or dies. Signals are the
parent's to answer: in a terminal Ctrl-C reaches both.
"""

from seed import quiet_grpc  # noqa: F401, I001 (before anything imports gRPC)

import contextlib
import signal
import threading
from multiprocessing.connection import Connection
from typing import NamedTuple

from learner.concurrency.pipe_rpc import Caller, portable
from learner.serving.ingress.backend import OrderedCaller, RemoteBackend
from learner.serving.limits import Limits
from learner.serving.server import ServerThread
from learner.serving.session import Timeouts
from seed.allocator import keep_freed_memory
from seed.errors import SeedError
from seed.logs import forward_log
from seed.security import Security


class Settings(NamedTuple):
    """How a process serves."""

    addresses: tuple[str, ...]
    security: Security
    timeouts: Timeouts
    limits: Limits


class Ends(NamedTuple):
    """The process's ends of the pipes that it is born with."""

    calls: Connection
    """Served by the learner, at once."""
    admissions: Connection
    """Served by the learner, which may take seconds."""
    steps: Connection
    answers: Connection
    stop: Connection
    """Closed by the learner when it is done, and by the system when it dies."""


def run_ingress_process(settings: Settings, ends: Ends) -> None:
    """Serves actors until the learner is done."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    keep_freed_memory()
    calls, admissions = OrderedCaller(ends.calls), Caller(ends.admissions)
    forward_log(lambda record: calls.tell("log", record))

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
        ends.stop.recv_bytes()
    server.close()
