"""Local actors with fake processes: which ones are started, replaced or given up."""

import logging
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from learner.concurrency.priority import SHARED_CORE_NICENESS
from learner.local_actors import ActorProcesses
from seed.errors import SeedError


class FakeProcess:
    """Stands for subprocess.Popen; lives until the test, or a signal, ends it."""

    started: list["FakeProcess"]
    niceness = 0

    def __init__(
        self,
        command: list[str],
        *,
        stdout: IO[bytes],
        stderr: IO[bytes],
        pass_fds: tuple[int],
        **_: object,
    ) -> None:
        assert stdout is stderr, "what an environment prints is in its actor's log"
        *self.flags, name, descriptor = command[command.index("actors") + 1 :]
        assert (name, descriptor) == ("--first-step-fd", str(pass_fds[0]))
        self._first_step = os.dup(pass_fds[0])
        self.log = Path(stderr.name)
        self.code: int | None = None
        self.is_deaf = False
        self.is_reaped = False
        self.pid = len(self.started)
        self.started.append(self)

    def poll(self) -> int | None:
        return self.code

    def step(self) -> None:
        """Tells of the first step."""
        os.write(self._first_step, b"1")

    def terminate(self) -> None:
        if not self.is_deaf:
            self.code = 0

    def kill(self) -> None:
        self.code = -9

    def wait(self, timeout: float | None = None) -> None:
        if self.code is None:
            assert timeout is not None, "waits for ever"
            raise subprocess.TimeoutExpired("actor", timeout)
        self.is_reaped = True


def make_nice(pid: int, niceness: int) -> None:
    """Stands for `let_others_go_first`."""
    FakeProcess.started[pid].niceness = niceness


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeProcess]]:
    """The processes started so far."""
    FakeProcess.started = []
    monkeypatch.setattr("learner.local_actors.subprocess.Popen", FakeProcess)
    monkeypatch.setattr("learner.local_actors.let_others_go_first", make_nice)
    ended_groups.clear()
    monkeypatch.setattr("learner.local_actors.end_group", ended_groups.append)
    yield FakeProcess.started


# The groups whose rest was killed.
ended_groups: list[int] = []


class Clock:
    """Seconds that pass when a test says so."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    """The clock of `lone`."""
    return Clock()


@pytest.fixture
def lone(tmp_path: Path, clock: Clock) -> Iterator[ActorProcesses]:
    """One actor, started."""
    actors = ActorProcesses(1, now=clock)
    actors.start(tmp_path)
    yield actors
    actors.close()


@pytest.fixture
def actors(tmp_path: Path) -> Iterator[ActorProcesses]:
    """Two actors and an evaluation actor, started, that log to `tmp_path`."""
    actors = ActorProcesses(2, num_eval_actors=1)
    actors.start(tmp_path)
    yield actors
    actors.close()


def test_every_actor_has_the_address_and_a_log_of_its_own(
    actors: ActorProcesses, started: list[FakeProcess], tmp_path: Path
) -> None:
    """Each actor also ends with the learner, even if the learner is killed."""
    common = ["--learner", actors.address, "--exit-with-parent", str(os.getpid())]
    assert [process.flags[:5] for process in started] == [[*common, "--share-memory"]] * 3
    logs = ["actor-0.log", "actor-1.log", "eval-actor-0.log"]
    assert [process.log for process in started] == [tmp_path / name for name in logs]


def test_local_actors_let_the_trainer_go_first(
    actors: ActorProcesses, started: list[FakeProcess]
) -> None:
    """They share cores with the trainer."""
    assert [process.niceness for process in started] == [SHARED_CORE_NICENESS] * 3


def test_evaluation_actors_play_in_one_small_group(
    actors: ActorProcesses, started: list[FakeProcess]
) -> None:
    """The other actors take their group sizes from the learner."""
    small = ["--role", "eval", "--num-groups", "1", "--envs-per-group", "4"]
    assert [process.flags[5:] for process in started] == [[], [], small]


def test_further_flags_are_not_for_evaluation_actors(started: list[FakeProcess]) -> None:
    """Evaluation actors have all flags that they need."""
    actors = ActorProcesses(1, num_eval_actors=1, extra_args=("--role", "eval", "--video", "x"))
    actors.start()
    actors.close()
    assert started[0].flags[5:] == ["--role", "eval", "--video", "x"]
    assert "--video" not in started[1].flags


def test_token_is_for_all_of_them(started: list[FakeProcess]) -> None:
    """The learner asks for it at every address, also at their private socket."""
    actors = ActorProcesses(1, num_eval_actors=1, token_file=Path("certs/token"))
    actors.start()
    actors.close()
    for process in started:
        assert process.flags[5:7] == ["--token-file", "certs/token"]


def test_actors_share_memory_only_if_the_learner_does(started: list[FakeProcess]) -> None:
    """Without --share-memory their steps go over gRPC, as those of other machines do."""
    actors = ActorProcesses(1, num_eval_actors=1, share_memory=False)
    actors.start()
    actors.close()
    assert not any("--share-memory" in process.flags for process in started)


def test_actors_are_spread_over_ingress_processes(started: list[FakeProcess]) -> None:
    """Each process has a socket of its own, and evaluation actors count too."""
    actors = ActorProcesses(2, num_eval_actors=1, ingress_processes=2)
    actors.start()
    actors.close()
    addresses = [process.flags[1] for process in started]
    assert addresses == [actors.address, f"{actors.address}-1", actors.address]


@pytest.mark.parametrize(("killed", "name"), [(1, "actor 1"), (2, "eval actor 0")])
def test_killed_actor_is_replaced_by_one_with_the_same_flags(
    actors: ActorProcesses,
    started: list[FakeProcess],
    killed: int,
    name: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The new actor goes on in the same log, and the others stay."""
    started[killed].step()
    started[killed].code = -9
    with caplog.at_level(logging.INFO):
        actors.check()
        actors.check()
    assert len(started) == 4
    assert started[3].flags == started[killed].flags
    assert started[3].log == started[killed].log
    assert caplog.messages == [
        f"local {name} was killed by signal 9 (SIGKILL), perhaps the system ran out of memory; "
        "starting another",
        f"local {name} is process 3",
    ]


def test_actor_killed_before_its_first_step_waits_longer_each_time_and_is_given_up(
    lone: ActorProcesses,
    clock: Clock,
    started: list[FakeProcess],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An environment that dies by a signal at once would die for ever."""
    for number, delay_s in enumerate((0.5, 1, 2, 4)):
        started[-1].code = -6
        lone.check()
        clock.seconds += delay_s - 0.1
        lone.check()
        assert len(started) == number + 1
        clock.seconds += 0.2
        lone.check()
        assert len(started) == number + 2
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert warnings[-1] == (
        "local actor 0 was killed by signal 6 (SIGABRT), native code gave up; starting another in "
        "4 s"
    )
    started[-1].log.write_text("Fatal Python error: Aborted")
    started[-1].code = -6
    with pytest.raises(SeedError) as caught:
        lone.check()
    first, last = str(caught.value).splitlines()
    assert first.startswith("local actor 0 was killed 5 times in a row before its first step, at")
    assert "by signal 6 (SIGABRT), native code gave up. The end of" in first
    assert last == "Fatal Python error: Aborted"


def test_actor_that_works_may_be_killed_often(
    lone: ActorProcesses, clock: Clock, started: list[FakeProcess]
) -> None:
    """Each time it has made steps for a while, and another starts at once."""
    for _ in range(50):
        clock.seconds += 61
        started[-1].step()
        started[-1].code = -9
        lone.check()
    assert len(started) == 51


def test_step_makes_up_for_deaths_before_it(
    lone: ActorProcesses, clock: Clock, started: list[FakeProcess]
) -> None:
    """Only deaths in a row count."""
    for _ in range(3):
        for _ in range(4):
            started[-1].code = -9
            lone.check()
            clock.seconds += 10
            lone.check()
        clock.seconds += 61
        started[-1].step()
        started[-1].code = -9
        lone.check()
    assert len(started) == 1 + 3 * 5


def test_actor_killed_again_and_again_after_a_few_steps_is_given_up(
    lone: ActorProcesses, clock: Clock, started: list[FakeProcess]
) -> None:
    """A few are replaced at once; later the actor waits up to half a minute."""
    waits = []
    with pytest.raises(SeedError, match="was killed 20 times in a row within 60 s of its start"):
        while True:
            died_at, before = clock.seconds, len(started)
            started[-1].step()
            started[-1].code = -11
            lone.check()
            while len(started) == before:
                clock.seconds += 0.25
                lone.check()
            waits.append(clock.seconds - died_at)
    assert waits[:7] == [0, 0, 0, 0.5, 1, 2, 4]
    assert waits[-1] == max(waits) == 30
    assert len(waits) == 19


def test_what_a_killed_actor_leaves_is_killed_before_the_next_starts(
    lone: ActorProcesses, clock: Clock, started: list[FakeProcess]
) -> None:
    """Workers and simulators would hold memory and cores; at the end the last ones' are killed."""
    started[0].code = -9
    lone.check()
    assert ended_groups == [started[0].pid]
    assert len(started) == 1
    clock.seconds += 1
    lone.check()
    lone.close()
    assert ended_groups == [process.pid for process in started]


def test_close_while_an_actor_waits_to_be_replaced_starts_no_other(
    lone: ActorProcesses, started: list[FakeProcess]
) -> None:
    """The run may end in that time."""
    started[0].code = -9
    lone.check()
    lone.close()
    assert len(started) == 1


@pytest.mark.parametrize("code", [0, 1])
@pytest.mark.parametrize(("index", "name"), [(0, "actor 0"), (2, "eval actor 0")])
def test_actor_that_gave_up_ends_the_run_with_its_last_words(
    actors: ActorProcesses, started: list[FakeProcess], index: int, name: str, code: int
) -> None:
    """Another actor would fail in the same way, and the end of the log says why."""
    lines = [f"line {number}" for number in range(50)]
    started[index].log.write_text("\n".join([*lines, "env_id: expected ..."]))
    started[index].code = code
    with pytest.raises(SeedError) as caught:
        actors.check()
    first, *shown = str(caught.value).splitlines()
    assert first == f"local {name} exited with code {code}:"
    assert shown == [*lines[-39:], "env_id: expected ..."]
    assert len(started) == 3


def test_close_ends_every_actor(actors: ActorProcesses, started: list[FakeProcess]) -> None:
    """An actor that ignores SIGTERM is killed, and no file is left."""
    started[1].is_deaf = True
    actors.close()
    assert [process.code for process in started] == [0, -9, 0]
    assert all(process.is_reaped for process in started)
    assert ended_groups == [process.pid for process in started]
    assert not Path(actors.address.removeprefix("unix:")).parent.exists()


def test_run_may_have_no_local_actors(started: list[FakeProcess]) -> None:
    """All actors may run elsewhere, or only evaluation actors here."""
    for num_eval_actors in (0, 1):
        actors = ActorProcesses(0, num_eval_actors=num_eval_actors)
        actors.start()
        actors.check()
        actors.close()
        assert len(started) == num_eval_actors
