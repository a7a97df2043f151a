"""The gRPC server: decode, submit to the batcher, await, encode.

All of it runs on one event loop (uvloop) in the server thread: the learner's, or that of
an ingress process. Replies arrive from other threads through `call_soon_threadsafe`.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial

import grpc
import numpy as np
import uvloop
from google.protobuf.message import DecodeError
from grpc.aio import EOF  # pyright: ignore[reportAttributeAccessIssue] (missing in the stubs)
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from learner.serving.authentication import interceptors, server_credentials
from learner.serving.backend import Backend
from learner.serving.limits import Limits, LogLimiter, PendingStreams
from learner.serving.listening import bind
from learner.serving.local_steps import LocalSteps, offer
from learner.serving.session import ConnectedActor, SilenceWatch, Timeouts
from learner.serving.transport import server_options
from seed import wire
from seed.errors import (
    IncompatibleError,
    LearnerUnavailableError,
    RunCompleteError,
    SeedError,
    SilenceError,
    SpecError,
    WireError,
    expected,
)
from seed.framing import Request, parse_request
from seed.grpc_status import status_of
from seed.pb import inference_pb2 as pb
from seed.pb import inference_pb2_grpc as pb_grpc
from seed.security import PLAIN_TEXT, Security
from seed.specs import EnvSpec

_LOG = logging.getLogger(__name__)

# The names that health checks ask for: the learner as a whole, and its service.
_HEALTH_NAMES = ("", wire.SERVICE)

# Seconds between the health status NOT_SERVING and the end of the streams.
_LAST_WORDS_S = 0.25

# Seconds between two lines about environments that are being made.
_PROGRESS_EVERY_S = 2.0

# Details of a status travel as HTTP/2 metadata, which gRPC limits to 8 KiB. An error may
# quote text of any length that an unknown client sent.
_MAX_DETAILS = 1_000


_RUN_IS_COMPLETE = RunCompleteError("the run is complete: it has spent its budget of env steps")


class InferenceService(pb_grpc.InferenceServicer):
    """Implements protos/inference.proto on top of a learner, in this process or another."""

    def __init__(
        self, backend: Backend, timeouts: Timeouts | None = None, limits: Limits | None = None
    ) -> None:
        self._backend = backend
        self._timeouts = timeouts or Timeouts()
        self._pending = PendingStreams(limits or Limits())
        self._log_of_waiting = LogLimiter()
        self._log_of_ready = LogLimiter(_PROGRESS_EVERY_S)
        self._log_of_slow = LogLimiter()
        self._is_complete = False
        # Each ends the reading of one open stream.
        self._ends: set[Callable[[], None]] = set()

    def complete(self) -> None:
        """Ends every stream, and every later call, with the news that the run is complete."""
        self._is_complete = True
        for end in tuple(self._ends):
            end()

    def _check_not_complete(self) -> None:
        if self._is_complete:
            raise _RUN_IS_COMPLETE

    async def GetTask(
        self, request: pb.GetTaskRequest, context: grpc.aio.ServicerContext
    ) -> pb.Task:
        """Returns the actor's task."""
        try:
            _check_version(request.protocol_version)
            self._check_not_complete()
        except SeedError as error:
            await context.abort(status_of(error), str(error))
        return await self._backend.make_task()

    async def Act(self, request_iterator: object, context: grpc.aio.ServicerContext) -> None:
        """Serves one actor until either side ends the stream."""
        del request_iterator  # `context.read` is used instead: it can be mixed with writes
        try:
            await self._serve(context)
        except SeedError as error:
            if self._is_complete:  # a part of the learner that has ended may say something else
                await self._end(context, _RUN_IS_COMPLETE)
            else:
                await self._refuse(context, error)

    async def _refuse(self, context: grpc.aio.ServicerContext, error: SeedError) -> None:
        """Counts and logs a stream that `error` ends, and ends it."""
        details = str(error)[:_MAX_DETAILS]
        self._backend.count_refused()
        # A client that may retry does so every few seconds, so its refusals are not all logged.
        if not isinstance(error, LearnerUnavailableError) or self._log_of_waiting.is_due():
            _LOG.warning("ended the stream of %s: %s", context.peer(), details)
        await self._end(context, error)

    async def _end(self, context: grpc.aio.ServicerContext, error: SeedError) -> None:
        """Ends the stream with the status of `error`."""
        # A peer that does not read does not receive the status either, until it reads again.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timeouts.goodbye_s):
                await context.abort(status_of(error), str(error)[:_MAX_DETAILS])

    async def _serve(self, context: grpc.aio.ServicerContext) -> None:
        with self._pending.enter():
            hello = await self._read_hello(context)
            run_name = await self._backend.admit(hello.spec)
            seats = await self._backend.seat(hello)
        session = ConnectedActor(hello, seats.slots, signs_s=self._timeouts.signs_s)
        local: LocalSteps | None = None
        writer = asyncio.create_task(_write_replies(session, context))
        try:
            local = offer(context, hello)
            if local is not None:
                await context.send_initial_metadata(local.metadata)
            welcome = pb.Welcome(
                run_name=run_name,
                envs_connected=seats.envs_connected,
                silence_limit_s=self._timeouts.step_s,
            )
            session.outbox.put_nowait(pb.ActResponse(welcome=welcome))
            await self._read_steps(session, context, local)
        finally:
            self._close(session)
            if local is not None:
                local.close()
            # Cancelled only after a pause: a write that has begun cannot be taken back, and gRPC
            # sends no status until that write has ended.
            session.outbox.put_nowait(None)
            await asyncio.wait({writer}, timeout=self._timeouts.goodbye_s)
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    async def _read_hello(self, context: grpc.aio.ServicerContext) -> wire.Hello:
        limit_s = self._timeouts.hello_s
        try:
            async with asyncio.timeout(limit_s):
                data = await context.read()
        except TimeoutError as error:
            wanted = f"one within {limit_s:g} s of the stream's start"
            raise SilenceError(expected("hello", wanted, "silence")) from error
        message = None if data is EOF else parse_request(data).message
        if message is None or message.WhichOneof("payload") != "hello":
            raise WireError(expected("payload", "hello as the first message", _payload(message)))
        _check_version(message.hello.protocol_version)
        return wire.decode_hello(message.hello)

    async def _read_steps(
        self, session: ConnectedActor, context: grpc.aio.ServicerContext, local: LocalSteps | None
    ) -> None:
        """Submits what the actor sends until it ends its side of the stream."""
        limit_s = self._timeouts.step_s
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as deadline:

                def end() -> None:
                    deadline.reschedule(loop.time())

                if local is not None:
                    local.take(session, self._submit, end)
                watch = SilenceWatch(session, limit_s, end)
                self._ends.add(end)
                try:
                    self._check_not_complete()
                    while (data := await context.read()) is not EOF:
                        self._take(session, parse_request(data), context.peer())
                finally:
                    self._ends.discard(end)
                    watch.close()
        except TimeoutError as error:
            if local is not None and local.error is not None:
                raise local.error from None
            raise SilenceError(_silence(limit_s)) from error

    def _take(self, session: ConnectedActor, request: Request, peer: str) -> None:
        """Submits a step of the session, or notes a sign of life."""
        match request.message.WhichOneof("payload"):
            case "env_outputs":
                step = request.message.env_outputs
                outputs = wire.decode_env_outputs(step, session.hello, request.observations)
                self._submit(session, outputs)
            case "sign_of_life":
                session.take_sign(request.message.sign_of_life)
                self._log_sign(request.message.sign_of_life, session.num_envs, peer)
            case _:
                got = _payload(request.message)
                raise WireError(expected("payload", "env_outputs after the hello", got))

    def _log_sign(self, sign: pb.SignOfLife, num_envs: int, peer: str) -> None:
        """Says what an actor is at; not for each sign of each actor."""
        if sign.envs_ready < num_envs:
            if self._log_of_ready.is_due():
                got = f"{sign.envs_ready} of {num_envs}"
                _LOG.info("%s environments of the actor at %s are ready", got, peer)
        elif self._log_of_slow.is_due():
            what = f"at one step of group {sign.group} for {sign.busy_s:.0f} s"
            _LOG.info("the actor at %s has been %s", peer, what)

    def _submit(self, session: ConnectedActor, outputs: wire.EnvOutputs) -> None:
        deliver = partial(self._deliver, session, outputs.group)
        reply = partial(_call_on_loop, asyncio.get_running_loop(), deliver)
        self._backend.submit(session.make_request(outputs, reply))

    def _deliver(self, session: ConnectedActor, group: int, actions: np.ndarray) -> None:
        session.deliver(group, actions)
        self._release_if_done(session)

    def _close(self, session: ConnectedActor) -> None:
        session.is_open = False
        self._backend.leave(session.slots)
        self._release_if_done(session)

    def _release_if_done(self, session: ConnectedActor) -> None:
        # Only after the last answer: until then the inference thread may write the slots'
        # state, and a new actor in these slots would find it.
        if not session.is_open and session.is_idle:
            self._backend.release(session.slots)


def _silence(limit_s: float) -> str:
    """Says what was missing, and which flags there are against it."""
    wanted = f"a step or a sign of life within {limit_s:g} s of the last answer (--actor-timeout-s)"
    return (
        f"{expected('env_outputs', wanted, 'silence')}. If a step or reset of a whole group takes "
        "longer: fewer --envs-per-group, or processes that share them (--env-workers)"
    )


def _call_on_loop(
    loop: asyncio.AbstractEventLoop, deliver: Callable[[np.ndarray], None], actions: np.ndarray
) -> None:
    # The loop is closed once the server has stopped; then the answer has no receiver.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(deliver, actions)


async def _write_replies(session: ConnectedActor, context: grpc.aio.ServicerContext) -> None:
    while (reply := await session.outbox.get()) is not None:
        await context.write(reply)


def _payload(message: pb.ActRequest | None) -> str:
    if message is None:
        return "the end of the stream"
    return message.WhichOneof("payload") or "nothing"


def _add_service(server: grpc.aio.Server, service: InferenceService) -> None:
    """Adds `service` like the generated function, but `Act` reads bytes: see `seed/framing.py`."""
    handlers = {
        "GetTask": grpc.unary_unary_rpc_method_handler(
            service.GetTask,
            request_deserializer=_parse_task_request,
            response_serializer=pb.Task.SerializeToString,
        ),
        "Act": grpc.stream_stream_rpc_method_handler(
            service.Act, response_serializer=pb.ActResponse.SerializeToString
        ),
    }
    generic = grpc.method_handlers_generic_handler(wire.SERVICE, handlers)
    server.add_generic_rpc_handlers((generic,))


def _parse_task_request(data: bytes) -> pb.GetTaskRequest:
    """Returns an empty request for bytes that are no request: it is then refused for its version.
    gRPC itself would log a traceback for each of them."""
    try:
        return pb.GetTaskRequest.FromString(data)
    except DecodeError:
        return pb.GetTaskRequest()


def _check_version(version: int) -> None:
    if version != wire.PROTOCOL_VERSION:
        raise IncompatibleError(expected("protocol_version", wire.PROTOCOL_VERSION, version))


def check_same_environment(ours: EnvSpec, theirs: EnvSpec) -> None:
    """Raises IncompatibleError naming the first field in which an actor's spec differs."""
    try:
        ours.check_matches(theirs)
    except SpecError as error:
        raise IncompatibleError(f"this run's {error}") from error


class ServerThread:
    """Runs the service on an event loop of its own, from `start` to `close`."""

    def __init__(
        self,
        make_backend: Callable[[], Backend],
        addresses: Sequence[str],
        on_failure: Callable[[BaseException], None],
        security: Security = PLAIN_TEXT,
        timeouts: Timeouts | None = None,
        limits: Limits | None = None,
        *,
        shares_ports: bool = False,
    ) -> None:
        """`make_backend` is called on the event loop. With `shares_ports` other servers may listen
        at the same TCP addresses, and the system spreads the connections over all of them."""
        self._make_backend = make_backend
        self._addresses = addresses
        self._security = security
        self._on_failure = on_failure
        self._timeouts = timeouts or Timeouts()
        self._limits = limits
        self._shares_ports = shares_ports
        self._bound: list[str] = []
        self._listening = threading.Event()
        self._startup_error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._service: InferenceService | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="server", daemon=True)

    @property
    def pids(self) -> list[int]:
        """Empty: the server has no processes of its own."""
        return []

    def start(self) -> list[str]:
        """Returns the addresses bound (port 0 replaced by the real one).

        Raises:
          ConfigError: an address that cannot be bound.
        """
        self._thread.start()
        self._listening.wait()
        if self._startup_error is not None:
            raise self._startup_error
        return self._bound

    def complete(self) -> None:
        """Tells all actors that the run is complete: those that are here, and those that come."""
        if self._service is not None:
            self._call_on_loop(self._service.complete)

    def close(self) -> None:
        """Ends every stream and waits for the thread."""
        if self._stop is not None:
            self._call_on_loop(self._stop.set)
        self._thread.join()

    def _call_on_loop(self, function: Callable[[], None]) -> None:
        assert self._loop is not None, "the loop runs before it has anything to call"
        with contextlib.suppress(RuntimeError):  # the loop is already closed
            self._loop.call_soon_threadsafe(function)

    def _run(self) -> None:
        try:
            uvloop.run(self._serve())
        except BaseException as error:
            if not self._listening.is_set():
                self._startup_error = error
            else:
                self._on_failure(error)
        finally:
            self._listening.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = grpc.aio.server(
            options=server_options(self._timeouts, shares_ports=self._shares_ports),
            interceptors=interceptors(self._security),
        )
        self._service = InferenceService(self._make_backend(), self._timeouts, self._limits)
        _add_service(server, self._service)
        health_service = health.aio.HealthServicer()  # pyright: ignore[reportAttributeAccessIssue]
        health_pb2_grpc.add_HealthServicer_to_server(health_service, server)
        for name in _HEALTH_NAMES:
            await health_service.set(name, health_pb2.HealthCheckResponse.SERVING)
        credentials = server_credentials(self._security)
        self._bound = [bind(server, address, credentials) for address in self._addresses]
        await server.start()
        self._listening.set()
        await self._stop.wait()
        await health_service.enter_graceful_shutdown()
        # The pause lets health watchers read the status. Actors whose stream ends this way retry
        # until a learner is back.
        await server.stop(grace=_LAST_WORDS_S)
