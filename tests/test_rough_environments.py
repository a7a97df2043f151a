"""Users' code that ends, multiplies or talks past the process that runs it."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from learner import local_actors
from learner.config.args import TrainArgs, parse_preset
from learner.local_actors import ActorProcesses
from learner.main import run_learner
from seed.errors import SeedError
from tests.support.processes import ENDLESS, TIMEOUT_S, Process, command

ROUGH = "tests.support.rough_envs:rough"


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    """Collects processes, and kills them also after a failed test."""
    started: list[Process] = []
    yield started
    for process in started:
        process.end(signal.SIGKILL)


@pytest.mark.parametrize("where", ["init", "reset", "step"])
def test_environment_that_aborts_ends_the_run_with_its_own_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The error names the signal, and shows what was printed and where the code was."""
    monkeypatch.setattr(local_actors, "_MAX_FRUITLESS_DEATHS", 2)
    flags = ["--env-id", f"{ROUGH}/Aborts-v0", "--env-kwargs", json.dumps({"where": where})]
    flags += ["--run-dir", str(tmp_path / "run"), "--train-in", "thread", *ENDLESS]
    preset, args = parse_preset(TrainArgs, "train", ["cartpole-vtrace", *flags])
    with pytest.raises(SeedError) as caught:
        run_learner(preset, args, ActorProcesses(1))
    shown = str(caught.value)
    wanted = "local actor 0 was killed 2 times in a row before its first step"
    assert shown.startswith(f"{wanted}, at last by signal 6 (SIGABRT)")
    assert "Fatal Python error: Aborted" in shown
    assert "rough_envs.py" in shown and "in _abort_in" in shown


def test_simulators_of_a_killed_actor_end_with_it(tmp_path: Path, processes: list[Process]) -> None:
    """Those of the next actor end with the run."""
    file = tmp_path / "pids"
    process = Process(
        *("train", "cartpole-vtrace", "--run-dir", tmp_path / "run", *ENDLESS),
        *("--env-id", f"{ROUGH}/Forks-v0", "--env-kwargs", json.dumps({"file": str(file)})),
        *("--num-groups", 1, "--envs-per-group", 2, "--batch-size", 2, "--report-every-s", 0.5),
        *("--train-in", "thread"),
    )
    processes.append(process)
    pid = int(process.read_until(r"local actor 0 is process (\d+)")[1])
    process.read_until(r"1 actors")
    simulators = [psutil.Process(int(pid)) for pid in file.read_text().split()]
    os.kill(pid, signal.SIGKILL)
    assert not psutil.wait_procs(simulators, TIMEOUT_S)[1]
    process.read_until(r"0 actors")
    process.read_until(r"1 actors")
    others = [psutil.Process(int(pid)) for pid in file.read_text().split()[2:]]
    assert len(others) == 2
    assert process.end(signal.SIGTERM) == 0, process.output
    assert not psutil.wait_procs(others, TIMEOUT_S)[1]


def _result(*args: object) -> tuple[dict[str, object], str]:
    """Returns the object on stdout, and what is on stderr, of a command with --json."""
    done = subprocess.run(
        command(*args, "--json"), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.parametrize("env_workers", [0, 2])
def test_environment_that_prints_writes_to_its_actors_log(tmp_path: Path, env_workers: int) -> None:
    """The output of train and eval is JSON; the terminal of a run without --json is left alone."""
    run_dir = tmp_path / "run"
    flags = ("--env-id", f"{ROUGH}/Prints-v0", "--train-in", "thread", "--run-dir", run_dir)
    flags += ("--num-groups", 1, "--envs-per-group", 2, "--batch-size", 2)
    flags += ("--total-env-steps", 200, "--env-workers", env_workers)
    result, stderr = _result("train", "cartpole-vtrace", *flags)
    assert result["env_steps"]
    log = (run_dir / "actor-0.log").read_text()
    assert "rough_envs is imported\n" in log  # and on stderr: the id was checked at the start
    for line in ("a banner", "a banner of native code", "stepping"):
        assert f"{line}\n" in log
        assert line not in stderr
    result, _ = _result("eval", run_dir, "--episodes", 2)
    assert result["eval_return_mean"] == 5


@pytest.mark.parametrize("train_in", ["thread", "process"])
def test_agents_and_observers_that_print_leave_the_result_alone(
    tmp_path: Path, train_in: str
) -> None:
    """Their lines are on stderr, those of the trainer process as lines of the log."""
    noisy = "tests.support.noisy_agent"
    flags = ("--torso", f"{noisy}:NoisyCore", "--observers", f"{noisy}:NoisyObserver")
    flags += ("--train-in", train_in, "--ingress-processes", 1, "--run-dir", tmp_path / "run")
    result, stderr = _result("train", "cartpole-vtrace", "--total-env-steps", 500, *flags)
    assert result["run_dir"] == str(tmp_path / "run")
    for line in ("noisy_agent is imported", "native code builds a network", "last words"):
        assert line in stderr
    assert ("learner: a network is built" in stderr) is (train_in == "process")
    result, _ = _result("eval", tmp_path / "run", "--episodes", 2)
    assert result["eval_episodes"] == 2
