"""Many simulated actors in one process, to load a learner.

    python -m seed_bench.parts.simulated_actors --learner ADDRESS

Each stream simulates an actor on a core of its own: two groups of environments take turns on it,
and a step lasts as long as a real one, by waiting. The rest is real: groups, encoding, gRPC, one
connection for each stream. One thread runs all streams, so that the generator costs less than the
learner that it loads; it reports its own cost too.
"""

import asyncio
import dataclasses
import json
import random
import sys
import time
from collections.abc import Coroutine, Sequence
from typing import Any

import grpc
import numpy as np
import tyro
from grpc.aio import EOF  # pyright: ignore[reportAttributeAccessIssue] (missing in the stubs)

from actors.client import act_rpc, channel_options
from actors.envs import make_group
from actors.group import EnvGroup
from seed.allocator import keep_freed_memory
from seed.env_config import EnvConfig
from seed.errors import LearnerUnavailableError, exits_on_error, require
from seed.grpc_status import error_from_status
from seed.pb import inference_pb2 as pb
from seed.wire import EnvOutputs, Hello, decode_actions, encode_env_outputs, encode_hello

# Real steps do not all last equally long. Without this, groups that start together would
# always report together.
_JITTER = 0.2


@dataclasses.dataclass(frozen=True, kw_only=True)
class GeneratorArgs:
    """Loads a learner of uint8 [84, 84] observations and 18 actions."""

    learner: str
    """The learner's address, host:port or unix:PATH. Several addresses with commas between share
    the streams. Neither TLS nor a token is used."""
    num_streams: int = 1
    """Actors."""
    num_groups: int = 2
    """Groups of each actor."""
    envs_per_group: int = 32
    """Environments in each message."""
    step_us: float = 0.0
    """Microseconds of one environment's step on the actor's own core; 0: as many steps as
    this process can make."""
    warm_up_steps: int = 45
    """Answers to every group before measuring begins. Meanwhile the learner's memory fills with
    the first unrolls, of which the last begins 20 steps late."""
    seconds: float = 4.0
    """Seconds measured. The line "measuring" on stdout marks their start, a JSON object their
    end."""

    def __post_init__(self) -> None:
        for name in ("num_streams", "num_groups", "envs_per_group"):
            require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        for name in ("step_us", "warm_up_steps"):
            require(getattr(self, name) >= 0, name, "0 or more", getattr(self, name))
        require(self.seconds > 0, "seconds", "above 0", self.seconds)


class Meter:
    """Counts and times the learner's answers since `restart`."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Starts a new measurement."""
        self.env_steps = 0
        self.round_trips_s: list[float] = []
        self._wall_s, self._cpu_s = time.perf_counter(), time.process_time()

    def report(self) -> dict[str, float]:
        """Returns rates, costs and latencies since `restart`."""
        wall_s = time.perf_counter() - self._wall_s
        cpu_s = time.process_time() - self._cpu_s
        if not self.env_steps:
            raise LearnerUnavailableError(f"no answer in {wall_s:.1f} s")
        p50, p99 = np.percentile(np.array(self.round_trips_s) * 1000, (50, 99))
        return {
            "env_steps": self.env_steps,
            "env_steps_per_s": self.env_steps / wall_s,
            "cpu_s_per_step": cpu_s / self.env_steps,
            "cores": cpu_s / wall_s,
            "round_trip_ms_p50": p50,
            "round_trip_ms_p99": p99,
        }


class SimulatedActor:
    """One stream and its groups, on the event loop that awaits `run`."""

    def __init__(self, args: GeneratorArgs, index: int, meter: Meter) -> None:
        self._step_s = args.step_us * 1e-6
        self._meter = meter
        self._jitter = random.Random(index)
        env = EnvConfig(env_id="seed/Null-v0")
        self._groups: list[EnvGroup] = [
            make_group(env, index=group, num_envs=args.envs_per_group, base_seed=index)
            for group in range(args.num_groups)
        ]
        self._hello = Hello(
            run_id=f"load-{index}",
            role=pb.ROLE_TRAIN,
            group_sizes=tuple(group.num_envs for group in self._groups),
            spec=self._groups[0].spec,
        )
        addresses = args.learner.split(",")
        self._address = addresses[index % len(addresses)]
        self._sent_at = [0.0] * args.num_groups
        self._warm_up_left = [args.warm_up_steps] * args.num_groups
        self._answers: asyncio.Queue[tuple[int, np.ndarray]] = asyncio.Queue()
        self.warm = asyncio.Event()

    async def run(self) -> None:
        """Steps until cancelled; raises SeedError if the learner ends the stream."""
        options = channel_options(self._hello)
        async with grpc.aio.insecure_channel(self._address, options) as channel:
            call = act_rpc(channel)()
            try:
                await call.write(encode_hello(self._hello).SerializeToString())
                await call.read()
                self._check_warm()
                await _both(self._receive(call), self._step(call))
            except grpc.aio.AioRpcError as error:
                raise error_from_status(error.code(), error.details() or "") from error

    async def _receive(self, call: Any) -> None:
        while (response := await call.read()) is not EOF:
            group, actions = decode_actions(response.actions, self._hello)
            self._meter.round_trips_s.append(time.perf_counter() - self._sent_at[group])
            self._meter.env_steps += len(actions)
            if not self.warm.is_set():
                self._warm_up_left[group] -= 1
                self._check_warm()
            self._answers.put_nowait((group, actions))
        raise LearnerUnavailableError("the learner ended the stream")

    def _check_warm(self) -> None:
        if max(self._warm_up_left) <= 0:
            self.warm.set()

    async def _step(self, call: Any) -> None:
        """Simulates the actor's core: steps one group after another, as their answers come."""
        for group in self._groups:
            await self._send(call, group.reset())
        free_at = time.perf_counter()
        while True:
            group, actions = await self._answers.get()
            outputs = self._groups[group].step(actions)
            free_at = max(free_at, time.perf_counter()) + self._step_duration_s(len(actions))
            await asyncio.sleep(free_at - time.perf_counter())
            await self._send(call, outputs)

    def _step_duration_s(self, num_envs: int) -> float:
        return self._step_s * num_envs * self._jitter.uniform(1 - _JITTER, 1 + _JITTER)

    async def _send(self, call: Any, outputs: EnvOutputs) -> None:
        self._sent_at[outputs.group] = time.perf_counter()
        await call.write(encode_env_outputs(outputs, self._hello.spec))


async def _both(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Runs both until one raises; cancels the other and raises that error."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def generate(args: GeneratorArgs) -> dict[str, float]:
    """Runs the actors until they have been measured; returns the meter's report.

    Raises:
      SeedError: the learner is absent, refuses an actor, or answers no step.
    """
    meter = Meter()
    actors = [SimulatedActor(args, index, meter) for index in range(args.num_streams)]
    running = [asyncio.create_task(actor.run()) for actor in actors]
    measuring = asyncio.create_task(_measure(args.seconds, actors, meter))
    done, _ = await asyncio.wait({measuring, *running}, return_when=asyncio.FIRST_COMPLETED)
    for task in (measuring, *running):
        task.cancel()
    await asyncio.gather(measuring, *running, return_exceptions=True)
    failed = done - {measuring}
    return (failed or done).pop().result()  # type: ignore[return-value]


async def _measure(
    seconds: float, actors: Sequence[SimulatedActor], meter: Meter
) -> dict[str, float]:
    for actor in actors:
        await actor.warm.wait()
    print("measuring", flush=True)
    meter.restart()
    await asyncio.sleep(seconds)
    return meter.report()


@exits_on_error("seed_bench.parts.simulated_actors")
def main(argv: Sequence[str]) -> int:
    """Loads the learner and prints the meter's report; returns the exit code."""
    keep_freed_memory()
    args = tyro.cli(GeneratorArgs, prog="python -m seed_bench.parts.simulated_actors", args=argv)
    print(json.dumps(asyncio.run(generate(args))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
