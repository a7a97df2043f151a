"""The SLURM scripts, run as plain shell scripts with real learners and actors."""

import os
import signal
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

    def __init__(self, script: str, *args: object, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            ["bash", DOCKER / "slurm" / script, *map(str, args)],
            env=os.environ | environment,
            cwd=ROOT,
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
    assert jobs[0].process.wait(TIMEOUT_S) == 1
    assert not (tmp_path / "run" / "finished").exists()
