"""CPU per env step of ways to carry steps: `python tools/compare_transports.py`

One echo server and one actor with a null environment, each a process, both with the
project's encoding; only what lies between differs: gRPC's synchronous or asyncio API on
either side, uvloop, Unix socket or loopback TCP, channel options, messages in flight.
Cases take turns, several rounds of each, and the best counts: other work only slows.
"""

import argparse
import asyncio
import json
import queue
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent import futures
from typing import Any, NamedTuple

import grpc
import numpy as np
import uvloop
from grpc.aio import EOF  # pyright: ignore[reportAttributeAccessIssue] (missing in the stubs)

from actors.envs import make_group
from actors.group import EnvGroup
from learner.concurrency.cpu_time import cpu_seconds_of
from seed.allocator import keep_freed_memory
from seed.env_config import EnvConfig
from seed.framing import parse_request
from seed.pb import inference_pb2 as pb
from seed.wire import Hello, decode_env_outputs, encode_actions, encode_env_outputs

METHOD = "/seed.v1.Inference/Act"
WARM_UP_S = 0.7


class Case(NamedTuple):
    """What lies between the two; the first is what the project does."""

    server: str = "uvloop"
    """uvloop or asyncio (gRPC's asyncio API on either loop), or sync."""
    client: str = "sync"
    """sync or asyncio."""
    transport: str = "unix"
    """unix or tcp (loopback)."""
    options: str = "default"
    """Of `OPTIONS`."""
    num_groups: int = 2
    """Messages in flight."""


# Both sides' channel options beyond the size limits.
OPTIONS: dict[str, list[tuple[str, int]]] = {
    "default": [],
    "window": [("grpc.http2.lookahead_bytes", 8 << 20), ("grpc.http2.bdp_probe", 0)],
    "frames": [("grpc.http2.max_frame_size", 4 << 20)],
    "both": [
        ("grpc.http2.lookahead_bytes", 8 << 20),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.max_frame_size", 4 << 20),
    ],
}
LIMITS = [("grpc.max_send_message_length", 1 << 28), ("grpc.max_receive_message_length", 1 << 28)]

CASES = (
    Case(),
    Case(server="asyncio"),
    Case(server="sync"),
    Case(client="asyncio"),
    Case(transport="tcp"),
    Case(options="window"),
    Case(options="frames"),
    Case(options="both"),
    Case(transport="tcp", options="both"),
    Case(num_groups=1),
    Case(num_groups=4),
)


class Echo:
    """Answers every step with zeros."""

    def __init__(self, hello: Hello) -> None:
        self.num_messages = 0
        self._hello = hello

    def answer(self, data: bytes) -> bytes:
        """Decodes a step as the learner does; returns the serialised answer."""
        request = parse_request(data)
        step = request.message.env_outputs
        outputs = decode_env_outputs(step, self._hello, request.observations)
        self.num_messages += 1
        actions = np.zeros(len(outputs.rewards), np.int64)
        return encode_actions(outputs.group, actions, self._hello.spec).SerializeToString()

    async def act_async(self, iterator: Any, context: Any) -> None:
        """Serves a stream on an event loop."""
        del iterator
        while (data := await context.read()) is not EOF:
            await context.write(self.answer(data))

    def act_sync(self, iterator: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """Serves a stream on a thread."""
        del context
        return map(self.answer, iterator)


def make_actor(num_groups: int, num_envs: int) -> tuple[list[EnvGroup], Hello]:
    """Returns the groups of an actor, and its hello."""
    env = EnvConfig(env_id="seed/Null-v0")
    groups = [
        make_group(env, index=index, num_envs=num_envs, base_seed=0) for index in range(num_groups)
    ]
    sizes = (num_envs,) * num_groups
    return groups, Hello(run_id="x", role=pb.ROLE_TRAIN, group_sizes=sizes, spec=groups[0].spec)


def serve_case(case: Case, num_envs: int, seconds: float) -> dict[str, float]:
    """Runs the server here and the actor in a process; returns CPU seconds per env step."""
    _, hello = make_actor(case.num_groups, num_envs)
    echo = Echo(hello)
    options = [*LIMITS, *OPTIONS[case.options], ("grpc.so_reuseport", 0)]
    with tempfile.TemporaryDirectory() as directory:
        address = f"unix:{directory}/s.sock" if case.transport == "unix" else "127.0.0.1:0"
        if case.server == "sync":
            server = grpc.server(futures.ThreadPoolExecutor(4), options=options)
            _add_handler(server, echo.act_sync)
            address = _bind(server, address)
            server.start()
            result = _measure(case, num_envs, address, echo, seconds)
            server.stop(None)
            return result

        async def serve() -> dict[str, float]:
            server = grpc.aio.server(options=options)
            _add_handler(server, echo.act_async)
            bound = _bind(server, address)
            await server.start()
            result = await asyncio.to_thread(_measure, case, num_envs, bound, echo, seconds)
            await server.stop(None)
            return result

        return (uvloop.run if case.server == "uvloop" else asyncio.run)(serve())


def _add_handler(server: Any, act: Any) -> None:
    handlers = {"Act": grpc.stream_stream_rpc_method_handler(act)}
    generic = grpc.method_handlers_generic_handler("seed.v1.Inference", handlers)
    server.add_generic_rpc_handlers((generic,))


def _bind(server: Any, address: str) -> str:
    port = server.add_insecure_port(address)
    return address if address.startswith("unix:") else f"127.0.0.1:{port}"


def _measure(
    case: Case, num_envs: int, address: str, echo: Echo, seconds: float
) -> dict[str, float]:
    command = [sys.executable, __file__, "--actor", address, *_flags(case, num_envs)]
    actor = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        while not echo.num_messages:
            time.sleep(0.01)
        time.sleep(WARM_UP_S)
        messages, wall_s = echo.num_messages, time.perf_counter()
        server_s, actor_s = time.process_time(), cpu_seconds_of(actor.pid)
        time.sleep(seconds)
        env_steps = (echo.num_messages - messages) * num_envs
        return {
            "server": (time.process_time() - server_s) / env_steps,
            "actor": (cpu_seconds_of(actor.pid) - actor_s) / env_steps,
            "env_steps_per_s": env_steps / (time.perf_counter() - wall_s),
        }
    finally:
        actor.kill()
        actor.wait()


def run_actor(case: Case, num_envs: int, address: str) -> None:
    """Steps until killed."""
    groups, hello = make_actor(case.num_groups, num_envs)
    options = [*LIMITS, *OPTIONS[case.options]]
    if case.client == "asyncio":
        asyncio.run(_act_async(groups, hello, address, options))
        return
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    call = grpc.insecure_channel(address, options).stream_stream(METHOD)(iter(requests.get, None))
    for group in groups:
        requests.put(encode_env_outputs(group.reset(), hello.spec))
    for data in call:
        requests.put(_next_step(groups, hello, data))


async def _act_async(
    groups: Sequence[EnvGroup], hello: Hello, address: str, options: list[tuple[str, int]]
) -> None:
    async with grpc.aio.insecure_channel(address, options) as channel:
        call = channel.stream_stream(METHOD)()
        for group in groups:
            await call.write(encode_env_outputs(group.reset(), hello.spec))
        # Until killed: the server never ends the stream.
        while data := await call.read():
            assert isinstance(data, bytes)
            await call.write(_next_step(groups, hello, data))


def _next_step(groups: Sequence[EnvGroup], hello: Hello, data: bytes) -> bytes:
    answer = pb.ActResponse.FromString(data).actions
    actions = np.frombuffer(answer.actions, np.int64)
    return encode_env_outputs(groups[answer.group].step(actions), hello.spec)


def _flags(case: Case, num_envs: int) -> list[str]:
    return ["--case", json.dumps(case._asdict()), "--envs", str(num_envs)]


def compare(num_envs: int, rounds: int, seconds: float) -> None:
    """Prints a Markdown table of all cases."""
    best: dict[Case, dict[str, float]] = {}
    for _ in range(rounds):
        for case in CASES:
            command = [sys.executable, __file__, *_flags(case, num_envs), "--seconds", str(seconds)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            cost = json.loads(done.stdout)
            print(" ".join(map(str, case)), done.stdout.strip(), file=sys.stderr)
            kept = best.setdefault(case, cost)
            if cost["server"] + cost["actor"] < kept["server"] + kept["actor"]:
                best[case] = cost
    print(f"| {' | '.join(Case._fields)} | server us | actor us | both | env steps/s |")
    print("|" + " --- |" * len(Case._fields) + " ---: |" * 4)
    for case, cost in best.items():
        server, actor = cost["server"] * 1e6, cost["actor"] * 1e6
        print(
            f"| {' | '.join(map(str, case))} | {server:.1f} | {actor:.1f} | {server + actor:.1f} "
            f"| {cost['env_steps_per_s']:,.0f} |"
        )


def main() -> int:
    """Compares all cases, or plays one part in a case; returns the exit code."""
    parser = argparse.ArgumentParser(description="CPU per env step of ways to carry steps")
    parser.add_argument("--envs", type=int, default=32, help="environments in a message")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each case")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--case", type=json.loads, help="JSON of one case, measured alone")
    parser.add_argument("--actor", metavar="ADDRESS", help="be the actor of --case")
    options = parser.parse_args()
    keep_freed_memory()
    if options.case is None:
        compare(options.envs, options.rounds, options.seconds)
    elif options.actor is not None:
        run_actor(Case(**options.case), options.envs, options.actor)
    else:
        print(json.dumps(serve_case(Case(**options.case), options.envs, options.seconds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
