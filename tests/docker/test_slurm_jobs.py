"""The SLURM scripts, run as plain shell scripts with real learners and actors."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from learner.checkpoint import load_checkpoint
from tests.support.tools import DOCKER, ROOT

TIMEOUT_S = 90.0


class Job:
    """A script as SLURM runs it: in the repository, with the job's number in the environment."""

    def __init__(
        self, script: str, *args: object, environment: dict[str, str], stdout: int | None = None
    ) -> None:
        self.process = subprocess.Popen(
            ["bash", DOCKER / "slurm" / script, *map(str, args)],
            env=os.environ | environment,
            cwd=ROOT,
            stdout=stdout,
            stderr=subprocess.STDOUT if stdout else None,
            text=True,
            start_new_session=True,
        )

    def end(self) -> None:
        """Kills the processes of the job that still run."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Returns variables for certificates, a `seed` command and a logging `scontrol`."""
    certs = tmp_path / "certs"
    subprocess.run([sys.executable, ROOT / "tools" / "make_certs.py", certs], check=True)
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    for name, line in (
        ("seed", f'exec {sys.executable} -m seed.cli "$@"'),
        ("scontrol", f'echo "$@" > {tmp_path}/scontrol'),
    ):
        (bin_dir / name).write_text(f"#!/bin/sh\n{line}\n")
        (bin_dir / name).chmod(0o755)
    return {
        "SLURM_JOB_ID": str(os.getpid()),
        "SEED": str(bin_dir / "seed"),
        "SEED_CERTS": str(certs),
        "SEED_HOST": "localhost",
        "SEED_POLL_S": "0.1",
        "PATH": f"{bin_dir}:{os.environ['PATH']}",
    }


@pytest.fixture
def jobs() -> Iterator[list[Job]]:
    """Collects jobs, and ends them also after a failed test."""
    started: list[Job] = []
    yield started
    for job in started:
        job.end()


def wait_for(path: Path) -> Path:
    """Returns `path` once the file holds something."""
    give_up = time.monotonic() + TIMEOUT_S
    while not path.exists():
        assert time.monotonic() < give_up, f"no {path} in {TIMEOUT_S:g} s"
        time.sleep(0.1)
    return path


def test_jobs_find_each_other_and_end_with_the_run(
    tmp_path: Path, environment: dict[str, str], jobs: list[Job]
) -> None:
    """The actor comes first and waits; the run completes over mutual TLS, and both jobs end."""
    run_dir = tmp_path / "run"
    flags = ("--total-env-steps", 5_000, "--report-every-s", 0.5)
    jobs.append(Job("actor.sbatch", run_dir, environment=environment))
    jobs.append(Job("learner.sbatch", run_dir, "cartpole-vtrace", *flags, environment=environment))
    assert [job.process.wait(TIMEOUT_S) for job in jobs] == [0, 0]
    assert (run_dir / "finished").exists()
    assert load_checkpoint(run_dir / "checkpoints").state["env_steps"] >= 5_000
    assert not (tmp_path / "scontrol").exists()


def test_time_limit_saves_and_asks_for_another_turn(
    tmp_path: Path, environment: dict[str, str], jobs: list[Job]
) -> None:
    """SIGUSR1 comes before the limit: the learner saves and ends, and its job is queued again."""
    run_dir = tmp_path / "run"
    flags = ("--total-env-steps", 10**9, "--checkpoint-every-s", 0.5)
    actor = Job("actor.sbatch", run_dir, environment=environment)
    learner = Job("learner.sbatch", run_dir, "cartpole-vtrace", *flags, environment=environment)
    jobs += [actor, learner]
    wait_for(run_dir / "checkpoints" / "latest")
    learner.process.send_signal(signal.SIGUSR1)
    assert learner.process.wait(TIMEOUT_S) == 0
    assert (tmp_path / "scontrol").read_text().split() == ["requeue", str(os.getpid())]
    assert not (run_dir / "finished").exists()
    # A SIGTERM from SLURM means that the node is taken away.
    actor.process.send_signal(signal.SIGTERM)
    assert actor.process.wait(TIMEOUT_S) == 0


def test_learner_that_gives_up_ends_its_job(
    tmp_path: Path, environment: dict[str, str], jobs: list[Job]
) -> None:
    """An error that would come back ends the job, and no file marks the run as finished."""
    flags = ("--device", "cuda:99")
    jobs.append(
        Job("learner.sbatch", tmp_path / "run", "cartpole-vtrace", *flags, environment=environment)
    )
    assert jobs[0].process.wait(TIMEOUT_S) == 2
    assert not (tmp_path / "run").exists()


def fake(directory: Path, name: str, *lines: str) -> None:
    """Puts a program of these shell lines into a directory of PATH."""
    (directory / name).write_text("\n".join(("#!/bin/bash", *lines, "")))
    (directory / name).chmod(0o755)


def run_job(script: str, *args: object, environment: dict[str, str]) -> tuple[int, str]:
    """Returns a job's exit code and what it prints, for jobs that end by themselves."""
    job = Job(script, *args, environment=environment, stdout=subprocess.PIPE)
    try:
        output = job.process.communicate(timeout=TIMEOUT_S)[0]
    finally:
        job.end()
    return job.process.returncode, output


# A learner that listens, says where, and ends as a complete run does.
LISTENS = f"""exec {sys.executable} -c '
import pathlib, socket, sys, time
run = pathlib.Path(sys.argv[sys.argv.index("--run-dir") + 1])
port = int(sys.argv[sys.argv.index("--listen") + 1].rpartition(":")[2])
run.mkdir(parents=True, exist_ok=True)
server = socket.create_server(("0.0.0.0", port))
(run / "port").write_text(str(port))
while not (run / "learner.address").exists():
    time.sleep(0.05)
print((run / "learner.address").read_text())
' "$@"
"""


@pytest.fixture
def fake_environment(tmp_path: Path, environment: dict[str, str]) -> dict[str, str]:
    """The variables of a job whose `sleep` takes no time, and whose node has made-up names."""
    fake(tmp_path / "bin", "sleep", f'echo "$1" >> {tmp_path}/sleeps', "exec /bin/sleep 0.005")
    fake(tmp_path / "bin", "hostname", '[[ $1 == -s ]] && echo gpu01 || echo "$FULL_NAME"')
    return environment | {"FULL_NAME": "gpu01.example.org", "SLURMD_NODENAME": "node1"}


def new_certs(environment: dict[str, str], *hosts: str) -> None:
    """Makes the job's certificates again, for these hosts."""
    named = [word for host in hosts for word in ("--host", host)]
    command = [sys.executable, ROOT / "tools" / "make_certs.py", environment["SEED_CERTS"], *named]
    subprocess.run(command, check=True)


@pytest.mark.parametrize(
    ("hosts", "full_name", "seed_host", "published"),
    [
        (("gpu01.example.org", "gpu01"), "gpu01.example.org", "", "gpu01.example.org"),
        (("*.example.org",), "gpu01.example.org", "", "gpu01.example.org"),
        (("gpu01",), "gpu01.example.org", "", "gpu01"),
        (("*.example.org", "gpu01"), "gpu01.rack.example.org", "", "gpu01"),
        (("node1",), "gpu01.example.org", "", "node1"),
        (("gpu01",), "localhost.localdomain", "", "gpu01"),
        (("10.0.0.5", "gpu01"), "gpu01", "10.0.0.5", "10.0.0.5"),
    ],
)
def test_published_name_is_in_the_certificate(
    tmp_path: Path,
    fake_environment: dict[str, str],
    hosts: tuple[str, ...],
    full_name: str,
    seed_host: str,
    published: str,
) -> None:
    """Actors know the learner by a full name, a short one, SLURM's, or the one that is set."""
    fake(tmp_path / "bin", "seed", LISTENS)
    new_certs(fake_environment, *hosts)
    names = {"FULL_NAME": full_name, "SEED_HOST": seed_host}
    code, output = run_job(
        "learner.sbatch", tmp_path / "run", "cartpole-vtrace", environment=fake_environment | names
    )
    assert code == 0, output
    assert f"{published}:{(tmp_path / 'run/port').read_text()}" in output.split()


@pytest.mark.parametrize(
    ("hosts", "full_name", "names", "advice"),
    [
        (
            ("old.example.org",),
            "gpu01.other.org",
            "gpu01.other.org gpu01 node1",
            'HOSTS="old.example.org gpu01.other.org gpu01 node1"',
        ),
        ((), "localhost", "gpu01 node1", 'HOSTS="gpu01 node1"'),
    ],
)
def test_certificate_of_other_names_stops_the_job_at_once(
    tmp_path: Path,
    fake_environment: dict[str, str],
    hosts: tuple[str, ...],
    full_name: str,
    names: str,
    advice: str,
) -> None:
    """The line names both sides and the command that makes them agree; no learner is started."""
    fake(tmp_path / "bin", "seed", f"touch {tmp_path}/started")
    new_certs(fake_environment, *hosts)
    there = fake_environment | {"FULL_NAME": full_name, "SEED_HOST": ""}
    code, output = run_job(
        "learner.sbatch",
        tmp_path / "run",
        "cartpole-vtrace",
        environment=there,
    )
    assert code == 2
    assert f"learner.pem: expected a certificate for {names}, got one for" in output
    assert advice in output
    assert not (tmp_path / "started").exists()


def test_missing_certificate_stops_the_job(
    tmp_path: Path, fake_environment: dict[str, str]
) -> None:
    """`make certs` was forgotten, or the job was submitted from another directory."""
    there = fake_environment | {"SEED_CERTS": str(tmp_path / "none")}
    code, output = run_job(
        "learner.sbatch",
        tmp_path / "run",
        "cartpole-vtrace",
        environment=there,
    )
    assert code == 2
    assert "expected a certificate for localhost, got one for no name; run: make certs" in output


def test_taken_ports_are_left_out(tmp_path: Path, fake_environment: dict[str, str]) -> None:
    """The port follows from the job's number; programs on it and on the next one keep theirs."""
    fake(tmp_path / "bin", "seed", LISTENS)
    first = 20_000 + int(fake_environment["SLURM_JOB_ID"]) % 10_000
    with socket.create_server(("127.0.0.2", first)), socket.create_server(("", first + 1)):
        code, output = run_job(
            "learner.sbatch", tmp_path / "run", "catch-vtrace", environment=fake_environment
        )
    assert code == 0, output
    assert (tmp_path / "run/port").read_text() == str(first + 2)


def test_port_that_is_taken_during_the_start_is_left(
    tmp_path: Path, fake_environment: dict[str, str]
) -> None:
    """A program takes the port after the look at it, and is even taken for the learner.

    The learner is refused, and takes the next port.
    """
    taker = "import socket, time; s = socket.create_server(('', int('$port'))); time.sleep(60)"
    fake(
        tmp_path / "bin",
        "seed",
        f"run={tmp_path}/run; mkdir -p $run",
        f"if [[ ! -e {tmp_path}/taker ]]; then",
        "  while [[ $1 != --listen ]]; do shift; done; port=${2##*:}",
        f'  {sys.executable} -c "{taker}" > /dev/null 2>&1 & echo $! > {tmp_path}/taker',
        "  until [[ -e $run/learner.address ]]; do /bin/sleep 0.05; done",
        "  exit 2",
        "fi",
        LISTENS,
    )
    first = 20_000 + int(fake_environment["SLURM_JOB_ID"]) % 10_000
    try:
        code, output = run_job(
            "learner.sbatch", tmp_path / "run", "catch-vtrace", environment=fake_environment
        )
    finally:
        os.kill(int((tmp_path / "taker").read_text()), signal.SIGKILL)
    assert code == 0, output
    assert (tmp_path / "run/port").read_text() == str(first + 1)


def test_learner_killed_again_and_again_is_given_up_after_longer_and_longer_pauses(
    tmp_path: Path, fake_environment: dict[str, str]
) -> None:
    """A learner that the system kills at its start would else keep a GPU until the time limit."""
    fake(tmp_path / "bin", "seed", f"echo start >> {tmp_path}/starts", "kill -KILL $$")
    code, output = run_job(
        "learner.sbatch", tmp_path / "run", "catch-vtrace", environment=fake_environment
    )
    assert code == 137
    assert (tmp_path / "starts").read_text().count("start") == 6
    assert re.findall(r"it starts again in (\d+) s", output) == ["5", "10", "20", "40", "80"]
    assert "was killed 6 times in a row, at last with exit code 137: giving up" in output
    assert not (tmp_path / "run").exists()


def test_actor_with_errors_is_given_up_after_longer_and_longer_pauses(
    tmp_path: Path, fake_environment: dict[str, str]
) -> None:
    """An actor that cannot work on its node starts ten times in half an hour, not every second."""
    fake(tmp_path / "bin", "seed", "exit 1")
    (tmp_path / "learner.address").write_text("learner:1")
    code, output = run_job("actor.sbatch", tmp_path, environment=fake_environment)
    assert code == 1
    pauses = ["5", "10", "20", "40", "80", "160", "300", "300", "300"]
    assert re.findall(r"ended with exit code 1; it starts again in (\d+) s", output) == pauses
    assert "ended 10 times in a row with an error, at last with exit code 1: giving up" in output


@pytest.mark.parametrize(
    ("code", "words"),
    [(2, "a setting cannot work (exit code 2): the actor is not started again"), (0, "")],
)
def test_actor_that_need_not_start_again_ends_its_job(
    tmp_path: Path, fake_environment: dict[str, str], code: int, words: str
) -> None:
    """A wrong flag, or a learner that says that the run is complete."""
    fake(tmp_path / "bin", "seed", f"echo start >> {tmp_path}/starts", f"exit {code}")
    (tmp_path / "learner.address").write_text("learner:1")
    assert run_job("actor.sbatch", tmp_path, environment=fake_environment)[0] == code
    output = run_job("actor.sbatch", tmp_path, environment=fake_environment)[1]
    assert words in output
    assert (tmp_path / "starts").read_text().count("start") == 2


def test_refused_learner_leaves_the_run_as_it_was(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """Another preset than the run's: it stays finished, and no address is published."""
    run_dir = tmp_path / "run"
    small = ("--total-env-steps", 1_000)
    job = Job("actor.sbatch", run_dir, environment=environment)
    try:
        done = run_job("learner.sbatch", run_dir, "catch-vtrace", *small, environment=environment)
        assert done[0] == 0, done[1]
        assert job.process.wait(TIMEOUT_S) == 0
    finally:
        job.end()
    assert not (run_dir / "learner.address").exists()

    code, output = run_job("learner.sbatch", run_dir, "cartpole-vtrace", environment=environment)
    assert code == 2
    assert "preset: expected 'catch-vtrace', the preset of the run in" in output
    assert (run_dir / "finished").exists()
    assert not (run_dir / "learner.address").exists()


@pytest.mark.parametrize(("saves", "code"), [("", 2), ("mkdir -p $run/checkpoints/1", 0)])
def test_time_limit_that_leaves_no_time_to_train_is_not_requeued(
    tmp_path: Path, fake_environment: dict[str, str], saves: str, code: int
) -> None:
    """With --time=3 the signal comes at the start of each turn: the job would come back for ever.
    A turn that has saved something is requeued, however short it was."""
    fake(
        tmp_path / "bin",
        "seed",
        f"trap 'run={tmp_path}/run; {saves or ':'}; exit 0' TERM",
        "kill -USR1 $PPID",
        "while true; do /bin/sleep 0.05; done",
    )
    done = run_job("learner.sbatch", tmp_path / "run", "catch-vtrace", environment=fake_environment)
    assert done[0] == code, done[1]
    refusal = "--time: expected a limit that leaves time to train before the last three minutes"
    assert (refusal in done[1]) == (code == 2)
    assert (tmp_path / "scontrol").exists() == (code == 0)
