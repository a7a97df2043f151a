"""`seed train`, `seed learner`, `seed actor` and `seed eval` as their users run them."""

import json
import os
import pty
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from learner.agents.vtrace import VTraceAgent
from learner.checkpoint import best_score, load_checkpoint
from learner.config.args import TrainArgs, parse_preset
from learner.config.run_dir import RunDir
from learner.local_actors import ActorProcesses
from learner.main import run_learner
from learner.reporting.metric_table import is_known
from tests.support.exploding_trainer import explode, run_exploding_trainer
from tests.support.processes import ENDLESS, TIMEOUT_S, Process, command


def _run(*args: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    words = command(*args)
    return subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, env=env)


def _reports(run_dir: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    """Collects processes, and kills them also after a failed test."""
    started: list[Process] = []
    yield started
    for process in started:
        process.end(signal.SIGKILL)


# Where the trainer runs matters to few tests: a thread of the learner is ready a second sooner.
IN_THREAD = ("--train-in", "thread")

CATCH_R2D2 = ("train", "memory-r2d2", "--env-id", "seed/Catch-v0", "--report-every-s", 0.5)


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 2,000 steps with a network of 9 units. Tests work on copies."""
    run_dir = tmp_path_factory.mktemp("finished") / "run"
    flags = ("--total-env-steps", 2_000, "--hidden-sizes", 9, *IN_THREAD)
    done = _run("train", "cartpole-vtrace", "--run-dir", run_dir, *flags)
    assert done.returncode == 0, done.stderr
    return run_dir


@pytest.fixture(scope="module")
def replay_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of Catch with a replay, ended by SIGTERM in mid training. Tests work on copies."""
    run_dir = tmp_path_factory.mktemp("replay") / "run"
    process = Process(*CATCH_R2D2, *ENDLESS, "--run-dir", run_dir)
    process.read_until(r"[1-9]\d* updates")
    assert process.end(signal.SIGTERM) == 0, process.output
    return run_dir


def test_run_completes_and_leaves_its_files(tmp_path: Path) -> None:
    """With learning rate 0 a run ends at its budget, and its files agree with its records."""
    run_dir = tmp_path / "run"
    done = _run(
        *("train", "cartpole-vtrace", "--run-dir", run_dir, "--json"),
        *("--total-env-steps", 20_000, "--learning-rate", 0, "--lstm-size", 8),
        *("--frame-stack", 2, "--see-last-step", "--report-every-s", 1),
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["env_steps"] >= 20_000
    reports = _reports(run_dir)
    assert [name for report in reports for name in report if not is_known(name)] == []
    deviations = [
        report["policy/max_abs_log_rho_at_zero_lag"]
        for report in reports
        if "policy/max_abs_log_rho_at_zero_lag" in report
    ]
    assert deviations and max(deviations) < 1e-4
    # The weights never change, so target and behaviour policy are equal.
    assert max(abs(r["policy/log_rho_mean"]) for r in reports if "policy/log_rho_mean" in r) < 1e-4
    assert (run_dir / "config.yaml").exists()
    assert list(run_dir.glob("events.out.tfevents*"))
    checkpoint = load_checkpoint(run_dir / "checkpoints")
    assert checkpoint.learner_step == result["learner_steps"]
    best = best_score(run_dir / "checkpoints")
    assert best is not None and best.value == result["checkpoint/best_return"]


def test_sigterm_saves_and_resume_goes_on(tmp_path: Path, processes: list[Process]) -> None:
    """SIGTERM ends a run with exit code 0; --resume goes on with its counters and flags."""
    run_dir = tmp_path / "run"
    flags = ("--run-dir", run_dir, "--report-every-s", 0.5)
    process = Process("train", "cartpole-vtrace", *flags, *ENDLESS, "--learning-rate", 3e-4)
    processes.append(process)
    process.read_until(r"[1-9]\d* updates")
    assert process.end(signal.SIGTERM) == 0, process.output
    before = load_checkpoint(run_dir / "checkpoints").state["counters"]

    budget = before["env_steps"] + 5_000
    done = _run(
        *("train", "cartpole-vtrace", "--resume", "--json", "--run-dir", run_dir),
        *("--total-env-steps", budget),
    )
    assert done.returncode == 0, done.stderr
    after = json.loads(done.stdout)
    assert budget <= after["env_steps"] < budget + 5_000
    assert after["learner_steps"] > before["learner_steps"]
    assert after["episodes"] > before["episodes"]
    assert "learning_rate: 0.0003" in (run_dir / "config.yaml").read_text()


def test_replay_holds_as_many_sequences_as_asked_for(tmp_path: Path) -> None:
    """Once the replay is full, new sequences replace the oldest."""
    done = _run(
        *("train", "memory-r2d2", "--run-dir", tmp_path / "run", "--report-every-s", 0.5),
        *("--replay-capacity", 250, "--total-env-steps", 10_000, *IN_THREAD),
    )
    assert done.returncode == 0, done.stderr
    held = [report.get("replay/sequences", 0) for report in _reports(tmp_path / "run")]
    assert held[-1] == max(held) == 250


def test_resumed_run_goes_on_with_its_replay(
    tmp_path: Path, processes: list[Process], replay_run: Path
) -> None:
    """Training goes on at once; without the replay it first collects new sequences."""
    run_dir = shutil.copytree(replay_run, tmp_path / "run", symlinks=True)
    held = int(_reports(run_dir)[-1]["replay/sequences"])
    resume = (*CATCH_R2D2, *ENDLESS, "--run-dir", run_dir, "--resume")
    process = Process(*resume)
    processes.append(process)
    assert int(process.read_until(r"replay: (\d+) sequences restored")[1]) >= held
    process.read_until(r"1 actors")
    assert process.end(signal.SIGTERM) == 0, process.output

    (run_dir / "checkpoints" / "latest" / "replay.safetensors").unlink()
    process = Process(*resume, *IN_THREAD)
    processes.append(process)
    process.read_until(r"the checkpoint has no replay: training goes on after 200 new sequences")
    process.read_until(r"1 actors")
    assert process.end(signal.SIGTERM) == 0, process.output


def test_run_survives_changes_and_damage_to_its_replay(
    tmp_path: Path, processes: list[Process], replay_run: Path
) -> None:
    """The replay meets fewer environments, a smaller capacity, compression, and a damaged file."""
    run_dir = shutil.copytree(replay_run, tmp_path / "run", symlinks=True)
    resume = (*CATCH_R2D2, *ENDLESS, "--run-dir", run_dir, "--resume")
    changed = ("--envs-per-group", 3, "--replay-capacity", 210, "--replay-compression", "zstd")
    process = Process(*resume, *changed)
    processes.append(process)
    assert 150 < int(process.read_until(r"replay: (\d+) sequences restored")[1]) <= 216
    process.read_until(r"[1-9]\d* updates")
    assert process.end(signal.SIGTERM) == 0, process.output
    assert "replay_compression: zstd" in (run_dir / "config.yaml").read_text()

    with (run_dir / "checkpoints" / "latest" / "replay.safetensors").open("r+b") as file:
        file.truncate(1000)
    process = Process(*resume, *IN_THREAD)
    processes.append(process)
    process.read_until(r"replay cannot be used .*torn.* training goes on after 200 new sequences")
    process.read_until(r"1 actors")
    assert process.end(signal.SIGTERM) == 0, process.output


def test_run_killed_during_its_first_save_starts_again(tmp_path: Path) -> None:
    """A supervisor gives the same command with --resume, and there is nothing to resume."""
    (tmp_path / "checkpoints" / ".tmp-7").mkdir(parents=True)
    flags = ("--run-dir", tmp_path, "--resume", "--total-env-steps", 1_000, *IN_THREAD)
    done = _run("train", "cartpole-vtrace", *flags, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["env_steps"] >= 1_000
    assert not list((tmp_path / "checkpoints").glob(".tmp-*"))


def test_refused_resume_changes_nothing(tmp_path: Path, finished_run: Path) -> None:
    """The run's own flags are still there for the next, which need not repeat them."""
    run_dir = shutil.copytree(finished_run, tmp_path / "run", symlinks=True)
    flags = ("train", "cartpole-vtrace", "--run-dir", run_dir, "--json")
    before = (run_dir / "config.yaml").read_text()

    done = _run(*flags, "--resume", "--total-env-steps", 9_000, "--hidden-sizes", 8)
    assert done.returncode == 1
    assert "expected the network that these flags describe" in done.stderr
    assert (run_dir / "config.yaml").read_text() == before

    done = _run(*flags, "--resume", "--total-env-steps", 3_000)
    assert done.returncode == 0, done.stderr
    after = (run_dir / "config.yaml").read_text()
    assert "hidden_sizes:\n  - 9\n" in after and "total_env_steps: 3000" in after


def test_learner_and_actor_in_two_terminals_survive_a_restart(
    tmp_path: Path, processes: list[Process]
) -> None:
    """Over TCP; the learner is killed and resumed, and the actor finds it again by itself."""
    run_dir = tmp_path / "run"
    flags = (*("--run-dir", run_dir), *ENDLESS, "--report-every-s", 0.5, "--checkpoint-every-s", 1)
    learner = Process("learner", "cartpole-vtrace", *flags, "--listen", "127.0.0.1:0")
    processes.append(learner)
    address = learner.read_until(r"listening on (127\.0\.0\.1:\d+)")[1]
    actor = Process("actor", "--learner", address, "--max-backoff-s", 0.5)
    processes.append(actor)
    learner.read_until(r"saved .*checkpoints")
    assert learner.end(signal.SIGKILL) == -signal.SIGKILL
    steps = load_checkpoint(run_dir / "checkpoints").state["env_steps"]

    learner = Process("learner", "cartpole-vtrace", *flags, "--resume", "--listen", address)
    processes.append(learner)
    resumed = learner.read_until(r"resuming .* at ([\d,]+) env steps")[1]
    assert int(resumed.replace(",", "")) == steps
    learner.read_until(r"1 actors")
    assert learner.end(signal.SIGINT) == 0, learner.output
    assert actor.end(signal.SIGTERM) == 0
    assert actor.output.count("connected to run") == 2


def test_actors_end_with_their_run(tmp_path: Path, processes: list[Process]) -> None:
    """One that steps is told at once, and one that comes while the learner lingers, too."""
    learner = Process(
        *("learner", "cartpole-vtrace", "--run-dir", tmp_path / "run", *IN_THREAD),
        *("--total-env-steps", 2_000, "--listen", "127.0.0.1:0", "--linger-s", 600),
    )
    processes.append(learner)
    address = learner.read_until(r"listening on (127\.0\.0\.1:\d+)")[1]
    actors = [Process("actor", "--learner", address, "--max-backoff-s", 0.5)]
    learner.read_until("the run is complete; telling actors that come back for 600 s")
    actors.append(Process("actor", "--learner", address, "--max-backoff-s", 0.5))
    processes.extend(actors)
    for actor in actors:
        actor.read_until("the run is complete: it has spent its budget of env steps")
        assert actor.wait() == 0, actor.output
    assert (tmp_path / "run" / "checkpoints" / "latest").exists()
    assert learner.end(signal.SIGTERM) == 0, learner.output


def test_killed_local_actor_is_replaced(tmp_path: Path, processes: list[Process]) -> None:
    """`seed train` goes on with a new actor when one is killed."""
    process = Process(
        *("train", "cartpole-vtrace", "--run-dir", tmp_path / "run", *ENDLESS),
        *("--report-every-s", 0.5, *IN_THREAD),
    )
    processes.append(process)
    pid = process.read_until(r"local actor 0 is process (\d+)")[1]
    process.read_until(r"1 actors")
    subprocess.run(["kill", "-9", pid], check=True)
    process.read_until(r"local actor 0 was killed by signal 9")
    process.read_until(r"0 actors")
    process.read_until(r"1 actors")
    assert process.end(signal.SIGINT) == 0, process.output
    assert (tmp_path / "run" / "actor-0.log").read_text().count("connected to run") == 2


@pytest.mark.parametrize(
    ("env_id", "hint"),
    [("CartPol-v1", "Did you mean: `CartPole`"), ("tests.no_such_module:X-v0", "No module named")],
)
def test_environment_that_does_not_exist_is_refused_before_torch_is_loaded(
    tmp_path: Path, env_id: str, hint: str
) -> None:
    """One line names it, and there is no run directory."""
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was loaded')")
    done = _run(
        *("train", "cartpole-vtrace", "--run-dir", tmp_path / "run", "--env-id", env_id),
        env=os.environ
        | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
    )
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("seed train: env_id: expected an environment registered on")
    assert env_id in last and hint in last
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_run_directory_of_a_run_is_refused(tmp_path: Path) -> None:
    """Without --resume a run never mixes with an earlier one's files."""
    (tmp_path / "metrics.jsonl").write_text('{"env_steps": 64}\n')
    done = _run("train", "cartpole-vtrace", "--run-dir", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("seed train: run_dir: expected")


def test_live_run_is_left_alone_and_a_killed_one_goes_on(
    tmp_path: Path, processes: list[Process]
) -> None:
    """A second learner is told who uses the directory. `seed eval` only reads, and is let in."""
    run_dir = tmp_path / "run"
    flags = ("cartpole-vtrace", "--run-dir", run_dir, *ENDLESS, *IN_THREAD)
    often = ("--report-every-s", 0.5, "--checkpoint-every-s", 1)
    live = Process("train", *flags, *often)
    processes.append(live)
    live.read_until(r"saved .*checkpoints")
    lock = (run_dir / "learner.lock").read_bytes()
    holder = json.loads(lock)
    named = f"used by process {holder['pid']} on {holder['host']} since {holder['since']}"
    for again in (("train", *flags, "--resume"), ("learner", *flags, "--resume")):
        done = _run(*again)
        assert done.returncode == 1
        wanted = "run_dir: expected a directory that no other learner uses"
        last = done.stderr.splitlines()[-1]
        assert last == f"seed {again[0]}: {wanted}, got {run_dir}, {named}"
    done = _run("eval", run_dir, "--episodes", 1, "--json")
    assert done.returncode == 0, done.stderr
    assert (run_dir / "learner.lock").read_bytes() == lock
    live.read_until(r"1 actors")

    live.end(signal.SIGKILL)
    resumed = Process("train", *flags, *often, "--resume")
    processes.append(resumed)
    resumed.read_until(r"resuming .* at [1-9]")
    resumed.read_until(r"1 actors")
    assert resumed.end(signal.SIGHUP) == 0, resumed.output
    assert "stopping: saving a checkpoint" in resumed.output
    steps = [report["env_steps"] for report in _reports(run_dir)]
    assert sum(after < before for before, after in pairwise(steps)) <= 1  # at the kill


def test_of_two_learners_that_start_at_once_in_a_directory_one_is_refused(
    tmp_path: Path, processes: list[Process]
) -> None:
    """The other one trains."""
    flags = ("train", "cartpole-vtrace", "--run-dir", tmp_path / "run", *ENDLESS, *IN_THREAD)
    both = [Process(*flags, "--report-every-s", 0.5) for _ in range(2)]
    processes += both
    seen = [process.read_until(r"no other learner uses|[1-9]\d* updates")[0] for process in both]
    assert seen.count("no other learner uses") == 1
    winner = both[1 - seen.index("no other learner uses")]
    assert winner.end(signal.SIGTERM) == 0, winner.output


def test_closed_terminal_saves_the_run(tmp_path: Path) -> None:
    """The live view has nowhere to draw then; the exit code is that of Ctrl-C."""
    run_dir = tmp_path / "run"
    words = command("train", "cartpole-vtrace", "--run-dir", run_dir, *ENDLESS)
    pid, terminal = pty.fork()
    if not pid:
        os.execv(words[0], [*words, "--report-every-s", "0.5"])
    while not RunDir(run_dir).has_results:
        os.read(terminal, 65_536)  # the view is drawn every second
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert load_checkpoint(run_dir / "checkpoints").state["env_steps"] > 0


@pytest.mark.parametrize("flag", ["--listen", "--metrics-port"])
def test_start_that_fails_leaves_no_run_directory(tmp_path: Path, flag: str) -> None:
    """So that the corrected command needs no other directory; a run to resume stays as it was."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        value = f"127.0.0.1:{port}" if flag == "--listen" else port
        run_dir = tmp_path / "runs" / "run"
        done = _run("learner", "cartpole-vtrace", "--run-dir", run_dir, flag, value, *IN_THREAD)
    assert done.returncode == 2
    assert f"seed learner: {flag[2:].replace('-', '_')}: expected" in done.stderr
    assert [*tmp_path.iterdir()] == []


def test_resume_of_a_complete_run_says_so_and_changes_nothing(
    tmp_path: Path, finished_run: Path
) -> None:
    """It needs no actor, and exits with 0, so that no supervisor starts it again and again."""
    run_dir = shutil.copytree(finished_run, tmp_path / "run", symlinks=True)
    before = {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file()}
    resume = ("learner", "cartpole-vtrace", "--run-dir", run_dir, "--resume")
    done = _run(*resume, "--listen", "127.0.0.1:0")
    assert done.returncode == 0, done.stderr
    steps = load_checkpoint(run_dir / "checkpoints").state["env_steps"]
    assert done.stdout == (
        f"{run_dir} is complete: {steps:,} env steps; to go on, raise --total-env-steps, which "
        "is 2000\n"
    )
    done = _run(*resume, "--json", "--log-format", "json")
    assert json.loads(done.stdout)["env_steps"] == steps
    assert "is complete" in json.loads(done.stderr)["message"]
    assert {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file()} == before


def test_resume_by_another_preset_is_refused_and_changes_nothing(finished_run: Path) -> None:
    """As when SEED_PRESET is set to another one for the same volume."""
    before = (finished_run / "config.yaml").read_bytes()
    done = _run("train", "memory-r2d2", "--run-dir", finished_run, "--resume")
    assert done.returncode == 2
    wanted = f"'cartpole-vtrace', the preset of the run in {finished_run}"
    assert f"seed train: preset: expected {wanted}, got 'memory-r2d2'; another" in done.stderr
    assert (finished_run / "config.yaml").read_bytes() == before


def test_any_gymnasium_id_works_by_itself(tmp_path: Path) -> None:
    """A discrete observation space trains and evaluates with nothing but --env-id."""
    run_dir = tmp_path / "run"
    flags = ("--env-id", "FrozenLake-v1", "--total-env-steps", 2_000, "--run-dir", run_dir)
    done = _run("train", "cartpole-vtrace", *flags, *IN_THREAD)
    assert done.returncode == 0, done.stderr
    done = _run("eval", run_dir, "--episodes", 5, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["eval_episodes"] == len(result["returns"]) == 5


def test_one_nan_of_one_environment_does_not_end_the_run(tmp_path: Path) -> None:
    """The environment is replaced; the actor's log names it, its step and the value."""
    run_dir = tmp_path / "run"
    flags = ("--env-id", "tests.actors.odd_envs:odd/NanReward-v0", "--num-actors", 1)
    done = _run(
        *("train", "cartpole-vtrace", *flags, "--total-env-steps", 2_000),
        *("--run-dir", run_dir, *IN_THREAD),
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("an environment failed and the run goes on; its actor's log says") == 1
    assert sum(report.get("envs/failed", 0) for report in _reports(run_dir)) == 1
    log = (run_dir / "actor-0.log").read_text()
    assert log.count("is replaced") == 1
    wanted = "environment 4 gave a wrong answer at step 3 of its episode and is replaced"
    assert wanted in log and "reward: expected a finite number of float32, got nan" in log


def test_run_whose_loss_is_not_finite_ends_with_the_reason(tmp_path: Path) -> None:
    """With a far too high learning rate it exits 1, writes the batches, and has no traceback."""
    run_dir = tmp_path / "run"
    done = _run(
        *("train", "cartpole-vtrace", "--run-dir", run_dir, *ENDLESS),
        *("--learning-rate", 1e30, "--max-non-finite-updates", 3),
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("seed train: loss: expected finite values, got ")
    assert last.endswith(f"in 3 updates in a row; batches are in {run_dir / 'non_finite'}")
    assert "Traceback" not in done.stderr
    assert len(list((run_dir / "non_finite").iterdir())) == 3


@pytest.mark.parametrize("train_in", ["thread", "process"])
def test_trainer_that_raises_ends_the_run_with_its_traceback(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    train_in: str,
) -> None:
    """On a thread or in a process, its error is printed, the exit code is 1, and nothing hangs."""
    monkeypatch.setattr(VTraceAgent, "loss", explode)
    monkeypatch.setattr(
        "learner.training.process.handle.run_trainer_process", run_exploding_trainer
    )
    flags = ["--run-dir", str(tmp_path / "run"), "--json", "--train-in", train_in, *ENDLESS]
    preset, args = parse_preset(TrainArgs, "train", ["cartpole-vtrace", *flags])
    assert run_learner(preset, args, ActorProcesses(1)) == 1
    errors = capsys.readouterr().err
    assert "boom in the loss" in errors and "Traceback" in errors
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_trainer_process_that_is_killed_ends_the_run(
    tmp_path: Path, processes: list[Process]
) -> None:
    """The run says so and exits 1; the system may kill it for want of memory."""
    process = Process(
        *("train", "cartpole-vtrace", "--run-dir", tmp_path / "run", *ENDLESS),
        *("--report-every-s", 0.5, "--checkpoint-every-s", 1),
    )
    processes.append(process)
    pid = process.read_until(r"trainer is process (\d+)")[1]
    process.read_until(r"saved .*checkpoints")
    subprocess.run(["kill", "-9", pid], check=True)
    process.read_until(r"the trainer process ended with code -9")
    assert process.wait() == 1
    assert load_checkpoint(tmp_path / "run" / "checkpoints").learner_step > 0


def test_run_goes_on_when_an_ingress_process_is_killed(
    tmp_path: Path, processes: list[Process]
) -> None:
    """Another one takes its place and gets its actor back; SIGTERM then ends all in order."""
    run_dir = tmp_path / "run"
    process = Process(
        *("train", "cartpole-vtrace", "--run-dir", run_dir, *ENDLESS, "--report-every-s", 0.5),
        *("--ingress-processes", 2, "--num-actors", 2),
    )
    processes.append(process)
    pids = [
        int(process.read_until(rf"ingress process {index} is process (\d+)")[1])
        for index in range(2)
    ]
    process.read_until(r"2 actors")
    os.kill(pids[0], signal.SIGKILL)
    process.read_until(r"ingress process 0 was killed by signal 9; starting another")
    pids.append(int(process.read_until(r"ingress process 0 is process (\d+)")[1]))
    while (run_dir / "actor-0.log").read_text().count("connected to run") < 2:
        process.read_until(r"updates")
    process.read_until(r"2 actors")
    assert process.end(signal.SIGTERM) == 0, process.output
    assert load_checkpoint(run_dir / "checkpoints").learner_step > 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert (run_dir / "actor-1.log").read_text().count("connected to run") == 1


def test_training_in_a_thread_saves_and_resumes(tmp_path: Path, finished_run: Path) -> None:
    """As it does on a GPU; a run may change its mind when it is resumed."""
    run_dir = shutil.copytree(finished_run, tmp_path / "run", symlinks=True)
    flags = ("train", "cartpole-vtrace", "--run-dir", run_dir, "--json", "--resume")
    for train_in, budget in (("process", 5_000), ("thread", 8_000)):
        done = _run(*flags, "--train-in", train_in, "--total-env-steps", budget)
        assert done.returncode == 0, done.stderr
        assert budget <= json.loads(done.stdout)["env_steps"] < budget + 3_000
