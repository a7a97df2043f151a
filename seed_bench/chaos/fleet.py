"""A learner, its actors and the networks between them, in real processes.

`tend` does what a supervisor does on a cluster: it restarts each process that has ended too
early, the learner with --resume.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import psutil

from learner.checkpoint import load_checkpoint
from learner.config.run_dir import RunDir
from seed.errors import CheckpointError
from seed_bench.links.tcp_proxy import TcpProxy

PRESET = "cartpole-vtrace"
CHECKPOINT_EVERY_S = 2.0
REPORT_EVERY_S = 0.25

_END_GRACE_S = 30.0


class Newest(NamedTuple):
    """The newest checkpoint that a run can resume from; zeros before its first one."""

    env_steps: int = 0
    wall_s: float = 0.0
    """Seconds that the run had taken."""


class Checkpoints(NamedTuple):
    """The result of reading all checkpoints of a run."""

    verified: int
    broken: list[str]
    newest: Newest


class Fleet:
    """One learner and `num_actors` actors, each behind a network of its own."""

    def __init__(
        self, directory: Path, *, num_actors: int, total_env_steps: int, rng_seed: int
    ) -> None:
        """Prepares the fleet; processes start at `with`. All files go below `directory`."""
        self.run_dir = directory / "run"
        self.address = f"unix:{directory / 'learner.sock'}"
        self.total_env_steps = total_env_steps
        self.surrenders: list[str] = []
        """Messages about actors that ended without being killed; there should be none."""
        self._reports_read = 0
        self._directory = directory
        self._flags = [
            *("--run-dir", os.fspath(self.run_dir), "--listen", self.address, "--resume"),
            *("--total-env-steps", str(total_env_steps), "--rng-seed", str(rng_seed)),
            *("--checkpoint-every-s", str(CHECKPOINT_EVERY_S)),
            *("--report-every-s", str(REPORT_EVERY_S)),
        ]
        self.networks = [TcpProxy(self.address) for _ in range(num_actors)]
        self.learner: subprocess.Popen[bytes]
        self.actors: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        for network in self.networks:
            network.__enter__()
        self.learner = self._start_learner()
        self.actors = [self._start_actor(number) for number in range(len(self.networks))]
        return self

    def __exit__(self, *exc: object) -> None:
        for actor in self.actors:
            actor.kill()
            actor.wait()
        with contextlib.suppress(ProcessLookupError):
            self.learner.send_signal(signal.SIGCONT)
        self.learner.terminate()
        try:
            self.learner.wait(_END_GRACE_S)
        except subprocess.TimeoutExpired:
            self.learner.kill()
            self.learner.wait()
        for network in self.networks:
            network.__exit__(None, None, None)

    def tend(self) -> None:
        """Restarts each process that has ended too early."""
        for number, actor in enumerate(self.actors):
            code = actor.poll()
            if code is not None:
                if code >= 0:
                    self.surrenders.append(f"actor {number} ended with code {code}")
                self.actors[number] = self._start_actor(number)
        if self.learner_has_died():
            self.learner = self._start_learner()

    def learner_has_died(self) -> bool:
        """Tells whether the learner has ended before its budget was spent."""
        return self.learner.poll() not in (None, 0)

    def has_finished(self) -> bool:
        """Tells whether the learner has done all its env steps and ended."""
        return self.learner.poll() == 0

    def new_reports(self) -> list[dict[str, Any]]:
        """Returns the reports made since the last call."""
        try:
            with (RunDir(self.run_dir).metrics).open("rb") as file:
                file.seek(self._reports_read)
                # An unfinished line is read at the next call, or never if the learner was killed.
                whole = file.read().rpartition(b"\n")[0]
        except FileNotFoundError:
            return []
        if whole:
            self._reports_read += len(whole) + 1
        return [json.loads(line) for line in whole.splitlines()]

    def trainer_process(self) -> int | None:
        """Returns the id of the learner's trainer process, if it has one."""
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self.learner.pid).children():
                if any("spawn_main" in argument for argument in child.cmdline()):
                    return child.pid
        return None

    def verify_checkpoints(self) -> Checkpoints:
        """Reads every checkpoint; none may be torn, and `latest` must name one."""
        directory = RunDir(self.run_dir).checkpoints
        verified, broken = 0, []
        for path in directory.glob("[0-9]*"):
            try:
                load_checkpoint(path)
                verified += 1
            except CheckpointError as error:
                # The learner removes old ones; one that has just gone is not broken.
                if path.exists():
                    broken.append(str(error))
        newest = Newest()
        if verified:
            state = load_checkpoint(directory).state
            newest = Newest(state["env_steps"], state["wall_s"])
        return Checkpoints(verified, broken, newest)

    def unfinished_saves(self) -> set[int]:
        """Returns the inodes of checkpoints that are being written, or were never finished."""
        inodes = set()
        for path in (RunDir(self.run_dir).checkpoints).glob(".tmp-[0-9]*"):
            with contextlib.suppress(FileNotFoundError):  # renamed meanwhile
                inodes.add(path.stat().st_ino)
        return inodes

    def _start_learner(self) -> subprocess.Popen[bytes]:
        return self._start(["learner", PRESET, *self._flags], "learner.log")

    def _start_actor(self, number: int) -> subprocess.Popen[bytes]:
        flags = ["--learner", self.networks[number].address, "--max-backoff-s", "0.5"]
        flags += ["--after-run", "wait"]  # an actor that ends has given up
        return self._start(["actor", *flags], f"actor-{number}.log")

    def _start(self, arguments: Sequence[str], log_name: str) -> subprocess.Popen[bytes]:
        with (self._directory / log_name).open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "seed.cli", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
