"""Measures acting and training on a GPU, with and without each of its knobs.

`make bench-gpu` prints one JSON object and takes less than ten minutes on a machine with one GPU
and 16 cores: forward passes and updates of every network with every knob, copies, latency under
load, whole runs, and how well acting can be recomputed. Where a part fails, its error takes the
place of its figure. `--smoke` runs the same on a CPU, so small that its figures mean nothing.
"""

import contextlib
import dataclasses
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
import tyro
from torch import Tensor, nn

from learner.acting.inference_thread import make_runner
from learner.agents.base import ActInput, Agent
from learner.agents.registry import make_agent
from learner.config.presets import PRESETS
from learner.config.run_config import InferenceConfig, RunConfig
from learner.device.setup import set_up_torch
from learner.device.streams import make_streams
from learner.networks.torsos import lay_out
from learner.records import map_tensors
from learner.reporting.metrics import Metrics
from learner.training.trainer import Trainer
from seed.errors import exits_on_error, require
from seed.provenance import evidence_header
from seed.specs import ArraySpec, EnvSpec
from seed_bench.parts.learner import random_batch, random_rows
from seed_bench.processes import flags_of, reports_so_far, run_module

# Longest time until a run makes its first update: actors start, and a replay fills.
_START_TIMEOUT_S = 180.0
_POLL_S = 0.1

ALGORITHMS = {"vtrace": "atari-vtrace", "r2d2": "atari-r2d2"}

_SPEC = EnvSpec(
    observations=(ArraySpec(name="screen", dtype="uint8", shape=(84, 84), minimum=0, maximum=255),),
    action=ArraySpec(name="action", dtype="int64", num_values=18),
)


@dataclasses.dataclass(frozen=True)
class Knobs:
    """One combination of settings that change how a network computes."""

    cuda_graphs: Literal["on", "off"] = "off"
    precision: Literal["float32", "bfloat16"] = "float32"
    channels_last: bool = False
    compile: bool = False


FORWARD_KNOBS = {
    "plain": Knobs(),
    "graphs": Knobs(cuda_graphs="on"),
    "channels_last": Knobs(channels_last=True),
    "bfloat16": Knobs(precision="bfloat16"),
    "graphs, bfloat16": Knobs(cuda_graphs="on", precision="bfloat16"),
    "graphs, bfloat16, channels_last": Knobs("on", "bfloat16", channels_last=True),
}
UPDATE_KNOBS = {
    "plain": Knobs(),
    "channels_last": Knobs(channels_last=True),
    "bfloat16": Knobs(precision="bfloat16"),
    "bfloat16, channels_last": Knobs(precision="bfloat16", channels_last=True),
}
# Measured separately, because compiling each takes up to a minute.
COMPILED_KNOBS = {
    "compile": Knobs(compile=True),
    "bfloat16, channels_last, compile": Knobs("off", "bfloat16", True, True),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Args:
    """Measures acting and training on a GPU and prints one JSON object."""

    device: str = "cuda"
    """Device to measure."""
    num_actors: int = 14
    """Actor processes of the whole runs, one core for each."""
    seconds: float = 540.0
    """Seconds after which no further figure is begun; the output says so in its place."""
    smoke: bool = False
    """Measure as little as possible of everything, on a CPU."""

    def __post_init__(self) -> None:
        require(self.num_actors >= 1, "num_actors", "at least 1", self.num_actors)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Size:
    """How much of everything is measured."""

    torsos: tuple[str, ...] = ("impala_shallow", "nature", "impala_deep")
    batch_sizes: tuple[int, ...] = (8, 64, 256, 1024)
    seconds: float = 0.25
    """Seconds for each figure."""
    compiled: tuple[str, ...] = tuple(COMPILED_KNOBS)
    copy_mib: tuple[int, ...] = (1, 16, 256)
    load_streams: tuple[int, ...] = (1, 4, 14)
    load_seconds: float = 4.0
    run_flags: tuple[str, ...] = ("--replay-min-size", "200", "--report-every-s", "2")
    env_ids: tuple[str, ...] = ("seed/Null-v0", "ALE/Pong-v5")
    run_seconds: float = 20.0
    """Seconds of each run, counted once it trains."""


_SMOKE = Size(
    torsos=("impala_shallow",),
    batch_sizes=(5,),
    seconds=0.0,
    compiled=(),
    copy_mib=(1,),
    load_streams=(1,),
    load_seconds=0.2,
    run_flags=(
        *("--torso", "impala_shallow", "--batch-size", "2", "--report-every-s", "0.3"),
        *("--envs-per-group", "4", "--replay-min-size", "4", "--sequence-length", "8"),
        *("--burn-in", "2", "--lstm-size", "8", "--head-size", "8"),
    ),
    env_ids=("seed/Null-v0",),
    run_seconds=1.0,
)


class Bench:
    """The parts of the bench: each method measures one and returns its figures by name."""

    def __init__(self, args: Args, device: torch.device) -> None:
        self._device = device
        self._size = _SMOKE if args.smoke else Size()
        self._num_actors = 1 if args.smoke else args.num_actors
        self._end_s = time.monotonic() + args.seconds

    def forwards(self) -> dict[str, Any]:
        """Returns torso -> knobs -> batch size -> ms of one act, its actions read back."""
        sizes = self._size.batch_sizes
        return {
            torso: {
                name: {str(n): self._attempt(self._forward_ms, torso, knobs, n) for n in sizes}
                for name, knobs in FORWARD_KNOBS.items()
            }
            for torso in self._size.torsos
        }

    def updates(self) -> dict[str, Any]:
        """Returns algorithm -> torso -> knobs -> ms of one update with the preset's batch."""
        return {
            algorithm: {
                torso: {
                    name: self._attempt(self._update_ms, algorithm, torso, knobs)
                    for name, knobs in UPDATE_KNOBS.items()
                }
                for torso in self._size.torsos
            }
            for algorithm in ALGORITHMS
        }

    def compiled_updates(self) -> dict[str, Any]:
        """Returns torso -> knobs -> ms of one update by V-trace."""
        return {
            torso: {
                name: self._attempt(self._update_ms, "vtrace", torso, COMPILED_KNOBS[name])
                for name in self._size.compiled
            }
            for torso in self._size.torsos
        }

    def copies(self) -> dict[str, Any]:
        """Returns size -> kind of host memory and direction -> GiB/s."""
        return {f"{n} MiB": self._attempt(self._copy_rates, n) for n in self._size.copy_mib}

    def loads(self) -> dict[str, Any]:
        """Returns number of actors -> throughput and latency of acting, under steady load."""
        return {str(n): self._attempt(self._load, n) for n in self._size.load_streams}

    def runs(self) -> dict[str, Any]:
        """Returns environment -> algorithm -> the rates of `seed train`, and the golden check."""
        return {
            env_id: {
                algorithm: self._attempt(self._run, preset, env_id)
                for algorithm, preset in ALGORITHMS.items()
            }
            for env_id in self._size.env_ids
        }

    def _attempt(self, measure: Callable[..., object], *args: object) -> object:
        """Returns the figure, or the text of its error, so that the others are still made."""
        if time.monotonic() > self._end_s:
            return "left out: out of time"
        try:
            return measure(*args)
        except Exception as error:  # any kind of error, as the device is untested
            return f"{type(error).__name__}: {error}"

    def _forward_ms(self, torso: str, knobs: Knobs, batch_size: int) -> float:
        _, agent = _agent("vtrace", torso, knobs)
        network = self._network(agent, knobs).eval()
        inputs = map_tensors(
            lambda x: x.to(self._device),
            ActInput(
                random_rows(_SPEC, 1, batch_size),
                agent.initial_state(batch_size, torch.device("cpu")),
                torch.arange(batch_size),
            ),
        )
        inference = InferenceConfig(cuda_graphs=knobs.cuda_graphs, max_inference_batch=batch_size)
        runner = make_runner(_SPEC, agent, torch.Generator(self._device), inference)
        acting = agent.acting_part(network)
        with make_streams(self._device).acting(), torch.inference_mode():
            runner.prepare([acting])
            return _median_ms(lambda: runner(acting, inputs).actions.cpu(), self._size.seconds)

    def _update_ms(self, algorithm: str, torso: str, knobs: Knobs) -> float:
        config, agent = _agent(algorithm, torso, knobs)
        network, compiled = self._network(agent, knobs), knobs.compile
        trainer = Trainer(agent, network, config.optimizer, Metrics(), compile_torsos=compiled)
        # A whole batch would take minutes on a CPU.
        num_unrolls = config.agent.unrolls_per_update if self._size.seconds else 1
        batch = random_batch(_SPEC, agent, config.agent, num_unrolls)
        batch = map_tensors(lambda x: x.to(self._device), batch)
        # At its end the update reads the metrics back, and so waits for the device.
        return _median_ms(
            lambda: trainer.train_step(batch, learner_step=0, progress=0.0), self._size.seconds
        )

    def _copy_rates(self, mebibytes: int) -> dict[str, float]:
        count, on_gpu = mebibytes << 20, self._device.type == "cuda"
        there = torch.empty(count, dtype=torch.uint8, device=self._device)
        rates = {}
        for kind in ("pageable", "pinned") if on_gpu else ("pageable",):
            host = torch.zeros(count, dtype=torch.uint8, pin_memory=kind == "pinned")
            for way, to, source in (("to device", there, host), ("to host", host, there)):

                def copy(to: Tensor = to, source: Tensor = source) -> None:
                    to.copy_(source, non_blocking=True)
                    if on_gpu:
                        torch.cuda.synchronize(self._device)

                ms = _median_ms(copy, self._size.seconds)
                rates[f"{kind}, {way}"] = mebibytes / 1024 / (ms / 1000)
        return rates

    def _load(self, num_streams: int) -> dict[str, float]:
        envs = 32 if self._size.seconds else 2
        flags = {
            "policy": self._size.torsos[-1],
            "num-streams": num_streams,
            "seconds": self._size.load_seconds,
            "envs-per-group": envs,
            "device": self._device,
        }
        return run_module(["seed_bench.parts.loaded_learner", *flags_of(flags)])

    def _run(self, preset: str, env_id: str) -> dict[str, float]:
        with tempfile.TemporaryDirectory(prefix="seed-bench-gpu-") as directory:
            run_dir = Path(directory) / "run"
            flags = {
                "env-id": env_id,
                "run-dir": run_dir,
                "num-actors": self._num_actors,
                "device": self._device,
            }
            command = [sys.executable, "-m", "seed.cli", "train", preset, "--json"]
            command += flags_of(flags)
            command += _flags_of(preset, self._size.run_flags)
            with _running(command) as process:
                _wait_until_it_trains(process, run_dir)
                time.sleep(self._size.run_seconds)
            return _summary(reports_so_far(run_dir))

    def _network(self, agent: Agent, knobs: Knobs) -> nn.Module:
        network = agent.build_network().to(self._device)
        return lay_out(network, channels_last=knobs.channels_last)


@exits_on_error("seed_bench.gpu")
def main(argv: Sequence[str]) -> int:
    """Measures and prints; returns the exit code."""
    args = tyro.cli(Args, prog="python -m seed_bench.gpu", args=argv)
    device = set_up_torch("cpu" if args.smoke else args.device, torch_threads=1)
    bench = Bench(args, device)
    results: dict[str, Any] = evidence_header("make bench-gpu")
    results["gpu"] = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    results["torch"] = torch.__version__
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "forward_ms": bench.forwards,
        "update_ms": bench.updates,
        "copy_gib_per_s": bench.copies,
        "load": bench.loads,
        "run": bench.runs,
        "compiled_update_ms": bench.compiled_updates,
    }
    for name, measure in parts.items():
        print(f"bench-gpu: {name}", file=sys.stderr)
        started_s = time.monotonic()
        results[name] = measure()
        results[f"{name}_took_s"] = round(time.monotonic() - started_s, 1)
    print(json.dumps(results, indent=2))
    return 0


def _wait_until_it_trains(process: "subprocess.Popen[str]", run_dir: Path) -> None:
    end_s = time.monotonic() + _START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < end_s:
        if any(report.get("learner_steps") for report in reports_so_far(run_dir)):
            return
        time.sleep(_POLL_S)


def _summary(reports: list[dict[str, float]]) -> dict[str, float]:
    """Returns rates over the second half of the time trained, and the worst golden check."""
    trained = [r for r in reports if r.get("learner_steps")]
    first, last = trained[len(trained) // 2], trained[-1]
    seconds = last["wall_s"] - first["wall_s"]
    golden = "policy/max_abs_log_rho_at_zero_lag"
    kept = ("inference/batch_size_mean", "inference/latency_ms_p50", "inference/latency_ms_p99")
    rates = {
        f"{name}_per_s": (last[name] - first[name]) / seconds if seconds else 0.0
        for name in ("env_steps", "learner_steps")
    }
    shares = {name: x for name, x in last.items() if name.startswith("time/")}
    worst = {golden: max((r[golden] for r in reports if golden in r), default=-1.0)}
    return rates | worst | {name: last[name] for name in kept if name in last} | shares


def _flags_of(preset: str, flags: tuple[str, ...]) -> list[str]:
    """Returns those of the flags, in pairs with their values, that a preset has."""
    own = _field_names(PRESETS[preset].config)
    pairs = zip(flags[::2], flags[1::2], strict=True)
    return [x for flag, value in pairs if flag[2:].replace("-", "_") in own for x in (flag, value)]


def _field_names(config: Any) -> set[str]:
    names = set()
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        names |= _field_names(value) if dataclasses.is_dataclass(value) else {field.name}
    return names


@contextlib.contextmanager
def _running(command: list[str]) -> Iterator["subprocess.Popen[str]"]:
    """Runs a command until the end of the `with` block, then ends it by SIGTERM.

    Raises:
      RuntimeError: its exit code is not 0; the message holds the end of its stderr.
    """
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, text=True)
        try:
            yield process
        finally:
            process.terminate()
            process.wait()
        if process.returncode:
            log.seek(0)
            what = f"{' '.join(command)} ended with {process.returncode}"
            raise RuntimeError(f"{what}: {log.read()[-2000:]}")


def _agent(algorithm: str, torso: str, knobs: Knobs) -> tuple[RunConfig, Agent]:
    config = PRESETS[ALGORITHMS[algorithm]].config
    network = dataclasses.replace(config.network, torso=torso, precision=knobs.precision)
    config = dataclasses.replace(config, network=network)
    return config, make_agent(_SPEC, config)


def _median_ms(work: Callable[[], object], seconds: float) -> float:
    """Returns the median time of calls, each of which waits for the device before it returns."""
    times_s, end_s = [], None
    for number in range(1_000_000):
        started_s = time.perf_counter()
        # The first calls choose kernels, or compile.
        if number == 3 or (not seconds and number == 0):
            end_s = started_s + seconds
        work()
        if end_s is not None:
            times_s.append(time.perf_counter() - started_s)
            if time.perf_counter() >= end_s:
                break
    return 1000 * statistics.median(times_s)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
