"""A SLURM cluster of this one machine for a test: munged, slurmctld and slurmd, until its end.

Used by tests/docker/test_slurm_cluster.py, which needs root and the programs (`make slurm-test`).
"""

import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.support.tools import DOCKER, require_tool

# The longest wait for what a job or a daemon does.
TIMEOUT_S = 180.0
_POLL_S = 0.2

_CONFIG = """
ClusterName=seed-test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
SlurmUser=root
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=FORCE:8
"""


class JobStatus(NamedTuple):
    """What SLURM says of a job."""

    state: str
    """Such as PENDING, RUNNING, COMPLETED, FAILED or CANCELLED."""
    exit_code: int
    restarts: int


class Cluster:
    """Submits jobs to the cluster and says how they are."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = {**os.environ, **environment}

    def command(self, *words: object, cwd: Path | None = None) -> str:
        """Returns what one of SLURM's programs prints; a failure fails the test."""
        done = subprocess.run(
            [*map(str, words)],
            env=self._environment,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}"
        return done.stdout

    def submit(self, script: str, flags: Sequence[str], *args: object, cwd: Path) -> int:
        """Submits one of docker/slurm with flags of sbatch; returns the job's number."""
        path = DOCKER / "slurm" / script
        return int(self.command("sbatch", "--parsable", *flags, path, *args, cwd=cwd))

    def statuses(self, job: int) -> list[JobStatus]:
        """Returns the status of a job, or of each job of an array."""
        return [
            JobStatus(
                state=_field("JobState", line),
                exit_code=int(_field("ExitCode", line).partition(":")[0]),
                restarts=int(_field("Restarts", line)),
            )
            for line in self.command("scontrol", "show", "job", "-o", job).splitlines()
        ]

    def wait_for_state(self, job: int, *states: str) -> list[JobStatus]:
        """Returns the statuses once each job of an array has one of these states."""
        wait_until(
            lambda: all(status.state in states for status in self.statuses(job)),
            lambda: f"job {job} is not {states}: {self.statuses(job)}",
        )
        return self.statuses(job)

    def start_requeued(self, job: int) -> None:
        """Starts a requeued job, which SLURM would let wait for two minutes.

        SLURM first tidies up after the job's last turn: a job that starts meanwhile fails.
        """

        def is_waiting() -> bool:
            shown = self.command("scontrol", "show", "job", "-o", job)
            return (_field("JobState", shown), _field("Reason", shown)) == ("PENDING", "BeginTime")

        wait_until(is_waiting, lambda: self.command("scontrol", "show", "job", job))
        self.command("scontrol", "update", f"JobId={job}", "StartTime=now")
        self.wait_for_state(job, "RUNNING")

    def process(self, job: int, words: str) -> psutil.Process:
        """Returns the process of a running job whose command line has these words."""
        lines = self.command("scontrol", "listpids", job).splitlines()[1:]
        found = [psutil.Process(int(line.split()[0])) for line in lines]
        matching = [process for process in found if words in " ".join(process.cmdline())]
        assert matching, f"job {job} has no process of {words!r}"
        return min(matching, key=lambda process: process.create_time())

    def cancel_all(self) -> None:
        """Cancels all jobs, and returns when none is left."""
        self.command("scancel", "--user=root")
        wait_until(lambda: not self.command("squeue", "--noheader"), lambda: "jobs do not end")


def wait_until(condition: Callable[[], bool], problem: Callable[[], str]) -> None:
    """Blocks until the condition holds; fails the test after TIMEOUT_S."""
    give_up = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < give_up, problem()
        time.sleep(_POLL_S)


@contextmanager
def cluster(**environment: str) -> Iterator[Cluster]:
    """Runs the daemons inside the context, with these variables in the jobs' environment."""
    for program in ("munged", "slurmctld", "slurmd", "sbatch"):
        require_tool(program)
    with ExitStack() as stack:
        # Short, since it holds sockets; munged wants its directories to be open to all users.
        directory = Path(tempfile.mkdtemp(prefix="slurm-"))
        stack.callback(shutil.rmtree, directory)
        directory.chmod(0o755)
        config = directory / "slurm.conf"
        _configure(config)
        _start(stack, directory, "munged", "--foreground", *_munge_flags(directory))
        wait_until((directory / "munge.socket").exists, lambda: _logs(directory))
        conf = {"SLURM_CONF": str(config)}
        _start(stack, directory, "slurmctld", "-D", "-c", **conf)
        _start(stack, directory, "slurmd", "-D", **conf)
        started = Cluster(environment | conf)
        wait_until(lambda: _is_idle(conf), lambda: _logs(directory))
        stack.callback(started.cancel_all)
        yield started


def _configure(path: Path) -> None:
    for name in ("state", "spool"):
        (path.parent / name).mkdir()
    with socket.create_server(("", 0)) as controller, socket.create_server(("", 0)) as node:
        ports = {
            "controller_port": controller.getsockname()[1],
            "node_port": node.getsockname()[1],
        }
    host = socket.gethostname().partition(".")[0]
    cpus = len(os.sched_getaffinity(0))
    path.write_text(_CONFIG.format(host=host, directory=path.parent, cpus=cpus, **ports))


def _munge_flags(directory: Path) -> list[str]:
    key = directory / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    names = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    files = [f"--{flag}={directory}/munge.{name}" for flag, name in names.items()]
    return ["--num-threads=10", f"--key-file={key}", *files]


def _start(
    stack: ExitStack, directory: Path, program: str, *flags: str, **environment: str
) -> None:
    """Starts a daemon that logs into `directory` and ends with the stack."""
    log = stack.enter_context((directory / f"{program}.log").open("w"))
    daemon = subprocess.Popen(
        [require_tool(program), *flags],
        env=os.environ | environment,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    stack.callback(daemon.wait, TIMEOUT_S)
    stack.callback(daemon.terminate)


def _is_idle(environment: Mapping[str, str]) -> bool:
    """Whether the node waits for jobs."""
    states = subprocess.run(
        ["sinfo", "--noheader", "--format=%T"],
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    return states.stdout.strip() == "idle"


def _logs(directory: Path) -> str:
    return "\n".join(path.read_text() for path in sorted(directory.glob("*.log")))


def _field(name: str, line: str) -> str:
    match = re.search(rf"\b{name}=(\S+)", line)
    assert match, f"no {name} in {line}"
    return match[1]
