"""Measures how networks affect runs: writes docs/results/networks.json, prints its tables.

    python -m seed_bench.studies.links --out docs/results/networks.json

A real `seed learner` and a real `seed actor` play over a network that delays, loses or cuts off
packets below TCP. Such a network needs root on Linux; elsewhere a proxy delays the bytes of TCP.
The throughput is compared with the rule in `seed_bench/in_flight.py`.
"""

import contextlib
import dataclasses
import json
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tyro

from learner.config.config_file import load_config
from learner.config.run_dir import RunDir
from seed.errors import SeedError, exits_on_error, require
from seed.provenance import evidence_header
from seed_bench.bench_case import measure_env
from seed_bench.in_flight import Cycle
from seed_bench.links import packet_link
from seed_bench.links.packet_link import PacketLink
from seed_bench.links.proxy_link import ProxyLink
from seed_bench.processes import reports_so_far

REPORT_EVERY_S = 0.5
# Time in which queues and TCP adapt to another network.
_SETTLE_S = 4.0
_TIMEOUT_S = 180.0
_ENDLESS = 10**12  # env steps

Link = PacketLink | ProxyLink
Report = dict[str, Any]


class Network(NamedTuple):
    """The network between learner and actor."""

    round_trip_ms: float
    loss: float = 0.0
    """Probability that a packet is lost, either way."""


NETWORKS = (Network(0), Network(10), Network(50), Network(100), Network(0, 0.01), Network(50, 0.01))


class Case(NamedTuple):
    """A learner and one actor, which runs two groups."""

    preset: tuple[str, ...]
    envs_per_group: tuple[int, ...]


CASES = {
    "cartpole": Case(("cartpole-vtrace",), (16, 64, 256)),
    "pong": Case(("atari-vtrace-cpu", "--env-id", "ALE/Pong-v5"), (32, 128)),
}
NUM_GROUPS = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworksArgs:
    """Measures how networks between actors and a learner affect runs."""

    out: Path
    """JSON file to write. If it exists, only the results of these cases are replaced."""
    cases: tuple[str, ...] = tuple(CASES)
    """Runs whose speed is measured over each network, of cartpole and pong."""
    seconds: float = 8.0
    """Seconds of each measurement of speed."""
    cuts: tuple[float, ...] = (5.0, 20.0, 60.0, 60.0, 60.0)
    """Seconds of each cut."""
    proxy: bool = False
    """Use the proxy even if this process may make a network of packets."""

    def __post_init__(self) -> None:
        for case in self.cases:
            require(case in CASES, "cases", f"of {', '.join(CASES)}", case)
        require(self.seconds > 0, "seconds", "above 0", self.seconds)
        require(min(self.cuts, default=1.0) > 0, "cuts", "all above 0", self.cuts)


class Run:
    """A learner on the near host and an actor on the far one, from `with` to its end."""

    def __init__(self, link: Link, preset: Sequence[str], envs_per_group: int) -> None:
        self._link = link
        groups = ("--num-groups", str(NUM_GROUPS), "--envs-per-group", str(envs_per_group))
        self._learner = ["learner", *preset, *groups, "--listen", f"{link.near_host}:0"]

    def __enter__(self) -> "Run":
        with contextlib.ExitStack() as stack:
            made = stack.enter_context(tempfile.TemporaryDirectory(prefix="seed-networks-"))
            self._directory = Path(made)
            learner = [
                *self._learner,
                *("--insecure", "--run-dir", str(self.run_dir)),
                *("--report-every-s", str(REPORT_EVERY_S), "--total-env-steps", str(_ENDLESS)),
            ]
            stack.enter_context(self._process(self._link.on_near_host, learner))
            address = stack.enter_context(self._link.reaching(self._port()))
            actor = ["actor", "--learner", address]
            stack.enter_context(self._process(self._link.on_far_host, actor))
            self.wait_until(lambda report: report["learner_steps"] > 0)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    @property
    def run_dir(self) -> Path:
        """The run's directory."""
        return self._directory / "run"

    def reports(self) -> list[Report]:
        """Returns all reports so far."""
        return reports_so_far(self.run_dir)

    def wait_until(self, fits: Callable[[Report], bool]) -> Report:
        """Returns the newest report as soon as it fits."""
        give_up_at = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < give_up_at:
            reports = self.reports()
            if reports and fits(reports[-1]):
                return reports[-1]
            time.sleep(REPORT_EVERY_S / 10)
        raise SeedError(f"the run made no fitting report in {_TIMEOUT_S:g} s:\n{self.logs()}")

    def logs(self) -> str:
        """Returns the logs of both processes."""
        return "".join(path.read_text() for path in sorted(self._directory.glob("*.log")))

    def _port(self) -> int:
        give_up_at = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < give_up_at:
            if match := re.search(r"listening on \S+:(\d+)", self.logs()):
                return int(match.group(1))
            time.sleep(0.05)
        raise SeedError(f"the learner does not listen:\n{self.logs()}")

    @contextlib.contextmanager
    def _process(self, host: list[str], command: list[str]) -> Iterator[None]:
        with open(self._directory / f"{command[0]}.log", "w") as log:
            full = [*host, sys.executable, "-m", "seed.cli", *command]
            process = subprocess.Popen(full, stdout=log, stderr=subprocess.STDOUT)
            try:
                yield
            finally:
                process.send_signal(signal.SIGINT)
                process.wait()


def measure_speed(link: Link, name: str, envs_per_group: int, seconds: float) -> list[Report]:
    """Returns a row for each network, of one run that has them one after the other."""
    link.change(delay_s=0.0, loss=0.0)
    rows = []
    with Run(link, CASES[name].preset, envs_per_group) as run:
        for network in NETWORKS:
            link.change(delay_s=network.round_trip_ms / 2000, loss=network.loss)
            time.sleep(_SETTLE_S)
            first = len(run.reports()) - 1
            time.sleep(seconds)
            rows.append(_row(network, NUM_GROUPS * envs_per_group, run.reports()[first:]))
            _say(f"{name}: {rows[-1]}")
        group_s = _group_s(run.run_dir)
    for row in rows:
        cycle = Cycle(row["round_trip_ms"] / 1000, group_s, row["learner_ms"] / 1000)
        row["group_ms"] = 1000 * group_s
        row["rule_env_steps_per_s"] = cycle.env_steps_per_s(row["envs"])
        row["share_of_rule"] = row["env_steps_per_s"] / row["rule_env_steps_per_s"]
    return rows


def _row(network: Network, num_envs: int, reports: list[Report]) -> Report:
    first, last = reports[0], reports[-1]
    steps, seconds = (last[name] - first[name] for name in ("env_steps", "wall_s"))
    latency = "inference/latency_ms_p50"
    # A report has none if no actor was served in its window.
    latencies = [report[latency] for report in reports[1:] if latency in report]
    if not latencies:
        raise SeedError(f"no actor was served over {network}")
    return {
        "envs": num_envs,
        **network._asdict(),
        "env_steps_per_s": steps / seconds,
        "learner_ms": sum(latencies) / len(latencies),
        "actors_refused": sum(report.get("actors/refused", 0) for report in reports[1:]),
    }


def _group_s(run_dir: Path) -> float:
    """Returns the seconds in which an actor steps a group, measured alone."""
    config = load_config(RunDir(run_dir).config)
    return config.actor.envs_per_group * measure_env(config, seconds=2.0)


def measure_cut(link: Link, seconds: float) -> Report:
    """Cuts off the only actor of a run, at 50 ms, for `seconds`; returns how it recovered."""
    link.change(delay_s=0.025, loss=0.0)
    with Run(link, CASES["cartpole"].preset, 16) as run:
        time.sleep(_SETTLE_S)
        link.cut()
        cut_at = time.monotonic()
        time.sleep(5 * REPORT_EVERY_S)  # steps that were under way have arrived or are lost
        before = run.reports()[-1]
        dropped_s = None
        while (elapsed_s := time.monotonic() - cut_at) < seconds:
            if dropped_s is None and run.reports()[-1]["actors/connected"] == 0:
                dropped_s = elapsed_s
            time.sleep(REPORT_EVERY_S / 10)
        link.heal()
        healed_at = time.monotonic()
        run.wait_until(lambda report: report["env_steps"] > before["env_steps"])
        back_s = time.monotonic() - healed_at
        time.sleep(_SETTLE_S)
        after, reports = run.reports()[-1], run.reports()
    counters = ("env_steps", "learner_steps", "episodes")
    return {
        "seconds": seconds,
        "dropped_after_s": dropped_s,
        "steps_flow_after_healing_s": back_s,
        **{f"{name}_before": before[name] for name in counters},
        **{f"{name}_after": after[name] for name in counters},
        "counters_never_fell": all(
            later[name] >= earlier[name]
            for earlier, later in zip(reports, reports[1:], strict=False)
            for name in counters
        ),
        "envs": after["envs/connected"],
    }


def measure(args: NetworksArgs, command: str) -> dict[str, Any]:
    """Returns case -> header and rows, and "cuts" -> header and rows.

    Args:
      args: what to measure.
      command: made these results; written into the header.
    """
    results: dict[str, Any] = {}
    with PacketLink() if packet_link.may_be_made() and not args.proxy else ProxyLink() as link:
        header = evidence_header(command) | {"network": link.kind}
        for name in args.cases:
            sizes = CASES[name].envs_per_group
            speeds = [measure_speed(link, name, size, args.seconds) for size in sizes]
            results[name] = header | {"rows": [row for rows in speeds for row in rows]}
        if args.cuts:
            results["cuts"] = header | {"rows": [measure_cut(link, cut_s) for cut_s in args.cuts]}
    return results


def tables(results: dict[str, Any]) -> str:
    """Returns the results as Markdown."""
    lines = ["| run | envs in flight | round trip ms | loss | env steps/s | the rule | share |"]
    lines.append("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name in CASES:
        for row in results.get(name, {}).get("rows", ()):
            speed, rule = row["env_steps_per_s"], row["rule_env_steps_per_s"]
            lines.append(
                f"| {name} | {row['envs']} | {row['round_trip_ms']:g} | {row['loss']:.0%} "
                f"| {speed:,.0f} | {rule:,.0f} | {row['share_of_rule']:.2f} |"
            )
    lines += ["", "| cut for s | dropped after s | steps flow again s after healing |"]
    lines.append("| ---: | ---: | ---: |")
    for cut in results.get("cuts", {}).get("rows", ()):
        dropped = "never" if cut["dropped_after_s"] is None else f"{cut['dropped_after_s']:.0f}"
        back_s = cut["steps_flow_after_healing_s"]
        lines.append(f"| {cut['seconds']:g} | {dropped} | {back_s:.1f} |")
    return "\n".join(lines)


def _say(message: str) -> None:
    print(f"networks: {message}", file=sys.stderr)


@exits_on_error("networks")
def main(argv: Sequence[str]) -> int:
    """Measures, writes and prints; returns the exit code."""
    args = tyro.cli(NetworksArgs, prog="python -m seed_bench.studies.links", args=argv)
    results = json.loads(args.out.read_text()) if args.out.exists() else {}
    results |= measure(args, shlex.join(["python", "-m", "seed_bench.studies.links", *argv]))
    args.out.write_text(json.dumps(results, indent=2) + "\n")
    print(tables(results))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
