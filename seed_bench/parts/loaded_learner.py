"""One learner under load.

    python -m seed_bench.parts.loaded_learner --policy store --num-streams 4

Server, batcher and inference are those of a run. There is no trainer; completed unrolls are
dropped. `simulated_actors` simulates the actors in a process of its own. Prints one JSON
object. `seed load` runs it for every point of a curve, each in a fresh process, so that the
memory of each point is measured alone.
"""

import contextlib
import dataclasses
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import psutil
import torch
import tyro

from learner.acting.batcher import Batcher
from learner.acting.inference_thread import InferenceThread
from learner.agents.base import Agent
from learner.agents.registry import make_agent
from learner.concurrency.cpu_time import cpu_seconds_of
from learner.concurrency.stopping import Stopped
from learner.concurrency.threads import start_thread
from learner.config.presets import PRESETS
from learner.config.run_config import InferenceConfig
from learner.device.setup import set_up_torch
from learner.device.streams import make_streams
from learner.records import Completed
from learner.reporting.metrics import Metrics
from learner.service import Acting, Service, ServingConfig
from learner.serving.limits import Limits
from learner.weights import PublishedWeights
from seed import wire
from seed.errors import SeedError
from seed.pb import inference_pb2 as pb
from seed.specs import EnvSpec
from seed_bench.parts.null_agent import NullAgent

Policy = Literal["null", "store", "impala_shallow", "nature", "impala_deep"]

_UNROLL_LENGTH = 20
_LSTM_SIZE = 256


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadPointArgs:
    """One learner, loaded by simulated actors with uint8 [84, 84] observations."""

    policy: Policy = "store"
    """null: action 0, nothing is kept. store: action 0, with the state of an LSTM of 256 for
    every slot and unrolls of 20. The others: a new network of that torso with 4 stacked
    frames, and its unrolls of 20."""
    num_streams: int = 1
    """Actors."""
    num_groups: int = 2
    """Groups of each actor."""
    envs_per_group: int = 32
    """Environments in each message."""
    ingress_processes: int = 0
    """See `seed learner PRESET --help`."""
    step_us: float = 0.0
    """See `python -m seed_bench.parts.simulated_actors --help`."""
    seconds: float = 4.0
    """Seconds measured, once every slot's memory is filled."""
    device: str = "cpu"
    """Where the network is: "auto" (CUDA where there is one), "cpu", "cuda", ..."""


class _Dropped:
    """Takes the place of training: the weights stay as made, and the unrolls are dropped."""

    def __init__(self, agent: Agent, device: torch.device) -> None:
        first, second = (agent.acting_part(agent.build_network()).to(device) for _ in range(2))
        self.weights = PublishedWeights(first, second, make_streams(device))

    def put(self, completed: Completed) -> None:
        """Drops the unrolls."""

    def stop(self) -> None:
        """Does nothing: no thread waits."""


class _NullThread:
    """Answers every request with action 0, and keeps nothing. See `learner.service.Acting`."""

    def __init__(self, learner: "LoadedLearner", batcher: Batcher) -> None:
        self._learner = learner
        self._batcher = batcher

    def start(self) -> None:
        self._thread = start_thread("inference", self._run, self._learner.fail)

    def stop(self) -> None:
        """Does nothing: the thread waits only for the batcher."""

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        metrics = self._learner.metrics
        clock = metrics.clock("inference")
        with contextlib.suppress(Stopped):
            while True:
                clock.switch("wait")
                batch = self._batcher.next_batch()
                clock.switch("forward")
                for request in batch:
                    request.reply(np.zeros(request.num_envs, np.int64))
                now = time.monotonic()
                latencies_ms = [1000 * (now - request.submitted_at) for request in batch]
                metrics.percentiles("inference/latency_ms", np.array(latencies_ms))
                num_envs = sum(request.num_envs for request in batch)
                metrics.mean("inference/batch_size_mean", num_envs)
                self._learner.add_env_steps(num_envs)


class LoadedLearner:
    """The acting half of a learner, in this process; see `serving`."""

    def __init__(
        self,
        policy: Policy,
        task: pb.Task,
        *,
        ingress_processes: int = 0,
        device: torch.device | None = None,
        batcher: Batcher | None = None,
    ) -> None:
        """By default acts on the CPU and closes batches as a run does."""
        self.metrics = Metrics()
        self.env_steps = 0
        """Env steps answered so far."""
        self.answered = threading.Event()
        self._device = device or torch.device("cpu")
        self._policy: Policy = policy
        self._failure: BaseException | None = None
        self._service = Service(
            ServingConfig(
                ingress_processes=ingress_processes,
                limits=Limits(max_envs=sys.maxsize),  # a load test measures how many fit
            ),
            name="load",
            make_task=lambda: task,
            build=self._build,
            on_failure=self.fail,
            metrics=self.metrics,
            batcher=batcher,
        )

    @property
    def ingress_pids(self) -> list[int]:
        """Ids of the processes that serve."""
        return self._service.ingress_pids

    @contextlib.contextmanager
    def serving(self) -> Iterator[str]:
        """Yields the learner's addresses, with commas between. Afterwards raises the error of a
        thread that failed."""
        with tempfile.TemporaryDirectory(prefix="seed-load-") as directory:
            addresses = self._service.start((f"unix:{directory}/learner.sock",))
            try:
                yield ",".join(addresses)
            finally:
                self._service.close()
        if self._failure is not None:
            raise self._failure

    def add_env_steps(self, count: int) -> None:
        """Counts the steps that the inference thread answered."""
        self.env_steps += count
        if count:
            self.answered.set()

    def add_episode(self, episode: wire.Episode, *, is_eval: bool) -> None:
        """Does nothing."""

    def fail(self, error: BaseException) -> None:
        """Ends the load because a thread raised `error`."""
        self._failure = self._failure or error
        self.answered.set()

    def _build(self, spec: EnvSpec, batcher: Batcher) -> Acting:
        if self._policy == "null":
            return _NullThread(self, batcher)
        agent = _make_agent(self._policy, spec)
        return InferenceThread(
            spec=spec,
            agent=agent,
            config=InferenceConfig(),
            training=_Dropped(agent, self._device),
            batcher=batcher,
            counters=self,
            metrics=self.metrics,
            device=self._device,
            rng_seed=0,
            on_failure=self.fail,
        )


def _make_agent(policy: Policy, spec: EnvSpec) -> Agent:
    if policy == "store":
        return NullAgent(
            num_actions=spec.action.num_values, unroll_length=_UNROLL_LENGTH, lstm_size=_LSTM_SIZE
        )
    preset = PRESETS["atari-vtrace"].config
    network = dataclasses.replace(preset.network, torso=policy)
    return make_agent(spec, dataclasses.replace(preset, network=network))


def measure_load(args: LoadPointArgs) -> dict[str, float]:
    """Returns rates, latencies, costs and memory of one point.

    Raises:
      SeedError: the generator failed.
    """
    device = set_up_torch(args.device, torch_threads=1)
    learner = LoadedLearner(
        args.policy, pb.Task(), ingress_processes=args.ingress_processes, device=device
    )
    with learner.serving() as address, _generator(args, address) as generator:
        rss_before = psutil.Process().memory_info().rss
        _next_line(generator)  # "measuring"
        learner.metrics.drain()
        cpu_s, ingress_cpu_s = time.process_time(), _ingress_cpu_s(learner)
        env_steps, wall_s = learner.env_steps, time.monotonic()
        load = json.loads(_next_line(generator))
        cpu_s = time.process_time() - cpu_s
        ingress_cpu_s = _ingress_cpu_s(learner) - ingress_cpu_s
        env_steps, wall_s = learner.env_steps - env_steps, time.monotonic() - wall_s
        metrics = learner.metrics.drain()
        rss_bytes = psutil.Process().memory_info().rss - rss_before
    num_batches = env_steps / metrics["inference/batch_size_mean"]
    forward_ms = 1000 * metrics["time/inference_forward_share"] * wall_s / num_batches
    num_envs = args.num_streams * args.num_groups * args.envs_per_group
    point = {
        "num_envs": num_envs,
        "num_streams": args.num_streams,
        "envs_per_message": args.envs_per_group,
        "env_steps_per_s": load["env_steps_per_s"],
        "learner_cpu_s_per_step": cpu_s / env_steps,
        "generator_cpu_s_per_step": load["cpu_s_per_step"],
        "generator_cores": load["cores"],
        "batch_size_mean": metrics["inference/batch_size_mean"],
        "inference_ms_p50": metrics["inference/latency_ms_p50"],
        "inference_ms_p99": metrics["inference/latency_ms_p99"],
        "forward_ms_mean": forward_ms,
        "p99_over_forward": metrics["inference/latency_ms_p99"] / forward_ms,
        "round_trip_ms_p50": load["round_trip_ms_p50"],
        "round_trip_ms_p99": load["round_trip_ms_p99"],
        "learner_bytes_per_env": rss_bytes / num_envs,
    }
    if args.ingress_processes:
        point["ingress_cpu_s_per_step"] = ingress_cpu_s / env_steps
    return point


def _ingress_cpu_s(learner: LoadedLearner) -> float:
    return sum(map(cpu_seconds_of, learner.ingress_pids))


@contextlib.contextmanager
def _generator(args: LoadPointArgs, address: str) -> Iterator[subprocess.Popen[str]]:
    flags = {
        "learner": address,
        "num-streams": args.num_streams,
        "num-groups": args.num_groups,
        "envs-per-group": args.envs_per_group,
        "step-us": args.step_us,
        "seconds": args.seconds,
    }
    command = [sys.executable, "-m", "seed_bench.parts.simulated_actors"]
    command += [text for name, value in flags.items() for text in (f"--{name}", str(value))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SeedError(f"seed_bench.parts.simulated_actors ended with code {process.wait()}")
    return line


def main(argv: Sequence[str]) -> int:
    """Measures one point and prints a JSON object; returns the exit code."""
    try:
        args = tyro.cli(LoadPointArgs, prog="python -m seed_bench.parts.loaded_learner", args=argv)
        print(json.dumps(measure_load(args)))
    except SeedError as error:
        print(f"seed_bench.parts.loaded_learner: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
