"""The SLURM scripts as jobs of a real SLURM on this machine: `make slurm-test`.

Needs root and the programs, which that target installs. Not part of `make test`.
"""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from learner.checkpoint import load_checkpoint
from tests.support.slurm import Cluster, cluster, wait_until
from tests.support.tools import ROOT

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]

# This machine has no GPU for SLURM to give, and few cores.
SMALL = ("--gres=none", "--cpus-per-task=1", "--mem=0")
ENDLESS = ("cartpole-vtrace", "--total-env-steps", 10**9, "--checkpoint-every-s", 1)


def make_certs(directory: Path, *hosts: str) -> None:
    """Makes certificates for these names."""
    named = [word for host in hosts for word in ("--host", host)]
    command = [sys.executable, ROOT / "tools" / "make_certs.py", directory, *named]
    subprocess.run(command, check=True)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose jobs find certificates for this machine and the `seed` of this checkout."""
    directory = tmp_path_factory.mktemp("shared")
    make_certs(directory / "certs", socket.gethostname())
    seed = directory / "seed"
    seed.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m seed.cli "$@"\n')
    seed.chmod(0o755)
    certs = str(directory / "certs")
    with cluster(SEED=str(seed), SEED_CERTS=certs, SEED_POLL_S="0.5") as running:
        yield running


@pytest.fixture(autouse=True)
def no_jobs_left(slurm: Cluster) -> Iterator[None]:
    """Cancels what a test has left in the queue."""
    yield
    slurm.cancel_all()


def submit_learner(slurm: Cluster, cwd: Path, *args: object, flags: tuple[str, ...] = ()) -> int:
    """Submits a learner of the run `cwd`/run; returns the job's number."""
    return slurm.submit("learner.sbatch", (*SMALL, *flags), "run", *args, cwd=cwd)


def submit_actors(slurm: Cluster, cwd: Path, *args: object) -> int:
    """Submits two actors of the run `cwd`/run; returns the array's number."""
    return slurm.submit("actor.sbatch", ("--array=1-2", "--mem=0"), "run", *args, cwd=cwd)


def wait_for_line(log: Path, *words: str) -> None:
    """Blocks until a job's log has each of these words."""

    def text() -> str:
        return log.read_text() if log.exists() else ""

    wait_until(
        lambda: all(word in text() for word in words), lambda: f"{log} without {words}:\n{text()}"
    )


def test_run_completes_and_ends_all_jobs(slurm: Cluster, tmp_path: Path) -> None:
    """Two actors wait for the learner, play for it, and end with the run: all with exit code 0."""
    actors = submit_actors(slurm, tmp_path)
    slurm.wait_for_state(actors, "RUNNING")
    learner = submit_learner(slurm, tmp_path, "cartpole-vtrace", "--total-env-steps", 20_000)
    ended = slurm.wait_for_state(learner, "COMPLETED", "FAILED")
    ended += slurm.wait_for_state(actors, "COMPLETED", "FAILED")
    assert [tuple(status) for status in ended] == [("COMPLETED", 0, 0)] * 3
    assert load_checkpoint(tmp_path / "run/checkpoints").state["env_steps"] >= 20_000
    assert (tmp_path / "run/finished").exists()
    assert not (tmp_path / "run/learner.address").exists()
    for task in (1, 2):
        wait_for_line(tmp_path / f"seed-actor-{actors}-{task}.log", "connected to run run at")

    other = submit_learner(slurm, tmp_path, "catch-vtrace")
    assert slurm.wait_for_state(other, "FAILED", "COMPLETED") == [("FAILED", 2, 0)]
    assert (tmp_path / "run/finished").exists()


def test_killed_learner_starts_again_and_a_cancelled_one_saves(
    slurm: Cluster, tmp_path: Path
) -> None:
    """kill -9 in the job costs a pause of 5 s; scancel ends the job, with a checkpoint."""
    actors = submit_actors(slurm, tmp_path)
    learner = submit_learner(slurm, tmp_path, *ENDLESS)
    log = tmp_path / f"seed-learner-{learner}.log"
    wait_for_line(log, "saved run/checkpoints")
    slurm.process(learner, "seed.cli learner").send_signal(signal.SIGKILL)
    wait_for_line(log, "was killed (exit code 137); it starts again in 5 s", "resuming run at")
    saved = load_checkpoint(tmp_path / "run/checkpoints").state["env_steps"]
    wait_until(
        lambda: load_checkpoint(tmp_path / "run/checkpoints").state["env_steps"] > saved,
        lambda: log.read_text(),
    )
    assert [status.state for status in slurm.statuses(actors)] == ["RUNNING"] * 2

    slurm.command("scancel", learner)
    assert slurm.wait_for_state(learner, "CANCELLED")[0].restarts == 0
    wait_until(
        lambda: not (tmp_path / "run/learner.address").exists(), lambda: "the address is left"
    )
    assert not (tmp_path / "run/finished").exists()
    assert [status.state for status in slurm.statuses(actors)] == ["RUNNING"] * 2


def test_time_limit_requeues_the_job_which_goes_on(slurm: Cluster, tmp_path: Path) -> None:
    """The signal before the limit saves; the job is pending again, and resumes where it was."""
    actors = submit_actors(slurm, tmp_path)
    limit = ("--time=2", "--signal=B:USR1@80")
    learner = submit_learner(slurm, tmp_path, *ENDLESS, flags=limit)
    slurm.wait_for_state(learner, "RUNNING")
    assert slurm.wait_for_state(learner, "PENDING", "FAILED")[0][::2] == ("PENDING", 1)
    assert not (tmp_path / "run/learner.address").exists()
    saved = load_checkpoint(tmp_path / "run/checkpoints").state["env_steps"]
    assert saved > 0

    slurm.start_requeued(learner)
    wait_for_line(tmp_path / f"seed-learner-{learner}.log", f"resuming run at {saved:,} env steps")
    wait_until((tmp_path / "run/learner.address").exists, lambda: "no address")
    assert [status.state for status in slurm.statuses(actors)] == ["RUNNING"] * 2


def test_setting_that_cannot_work_ends_the_job_for_good(slurm: Cluster, tmp_path: Path) -> None:
    """An unknown flag of the learner, and one of the actors: exit code 2, and no restart."""
    learner = submit_learner(slurm, tmp_path, "cartpole-vtrace", "--no-such-flag")
    assert slurm.wait_for_state(learner, "FAILED", "COMPLETED") == [("FAILED", 2, 0)]
    assert not (tmp_path / "run").exists()

    (tmp_path / "run").mkdir()
    (tmp_path / "run/learner.address").write_text("localhost:1")
    actors = submit_actors(slurm, tmp_path, "--no-such-flag")
    assert slurm.wait_for_state(actors, "FAILED", "COMPLETED") == [("FAILED", 2, 0)] * 2


def test_certificate_of_other_nodes_ends_the_job(slurm: Cluster, tmp_path: Path) -> None:
    """The log names the command that makes a certificate for this node."""
    make_certs(tmp_path / "certs", "gpu01.example.org")
    flags = (f"--export=ALL,SEED_CERTS={tmp_path}/certs",)
    learner = submit_learner(slurm, tmp_path, *ENDLESS, flags=flags)
    assert slurm.wait_for_state(learner, "FAILED", "COMPLETED") == [("FAILED", 2, 0)]
    host = socket.gethostname().partition(".")[0]
    log = (tmp_path / f"seed-learner-{learner}.log").read_text()
    assert "run: make certs" in log
    assert f"gpu01.example.org {host}" in log
