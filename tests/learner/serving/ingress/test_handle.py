"""Ingress processes and learners that are killed: which process notices, and what is left.

That they serve as a thread of the learner does is shown in tests/learner/serving.
"""

import contextlib
import os
import queue
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest

from learner.reporting.metrics import Metrics
from learner.serving.ingress.handle import IngressProcesses
from learner.serving.reception import Reception
from seed.errors import LearnerUnavailableError, SeedError
from seed.grpc_status import error_from_status
from seed.pb import inference_pb2 as pb
from seed_bench.chaos.visitor import Visitor
from tests.learner.builders import TIMEOUT_S
from tests.learner.serving.support import (
    HELD,
    SPEC,
    FakeActor,
    Serving,
    WatchedBatcher,
    first,
    step,
)

ROOT = Path(__file__).parents[4]


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """Two processes that serve `SPEC`, between which actors take turns."""
    serving = Serving(tmp_path, ingress_processes=2)
    yield serving
    serving.close()


def reception() -> Reception:
    """Returns a reception without an inference thread."""
    return Reception(
        make_task=pb.Task, admit=lambda spec: "a-run", batcher=WatchedBatcher(), metrics=Metrics()
    )


@contextlib.contextmanager
def serving_at(
    address: str, *, num_processes: int
) -> Iterator[tuple[IngressProcesses, list[str], queue.Queue[BaseException]]]:
    """Yields running processes, their addresses, and a queue of the errors that end the run."""
    failures: queue.Queue[BaseException] = queue.Queue()
    server = IngressProcesses(reception(), [address], failures.put, num_processes=num_processes)
    try:
        yield server, server.start(), failures
    finally:
        server.close()


def wait_for_end(pid: int) -> None:
    """Blocks until a process has ended, which need not be a child of this one."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([process], [], [], TIMEOUT_S)[0], f"process {pid} lives on"
    finally:
        os.close(process)


def test_killed_process_ends_the_streams_of_its_own_actors_alone(serving: Serving) -> None:
    """Its actors get a status to retry on, and the process that replaces it serves them."""
    losing, staying = serving.actor(), serving.actor()
    losing.start(2)
    staying.start(3)
    os.kill(serving.ingress_pids[0], signal.SIGKILL)
    assert isinstance(error_from_status(*losing.status()), LearnerUnavailableError)
    serving.batcher.wait_for_connected(3)
    assert staying.act(step(3, value=2)).actions
    again = Visitor(serving.addresses[0], 2, spec=SPEC)
    assert again.welcome.envs_connected == 5
    again.play(2)
    assert serving.inference.requests[-1].slots.tolist() == [0, 1]
    again.leave()


def test_slots_of_a_killed_process_are_released_after_the_last_answer_only(
    serving: Serving,
) -> None:
    """Until then the inference thread may still write to them."""
    losing = serving.actor()
    losing.start(2)
    losing.send(step(2, value=HELD))
    held = serving.inference.held.get(timeout=TIMEOUT_S)
    os.kill(serving.ingress_pids[0], signal.SIGKILL)
    serving.batcher.wait_for_connected(0)

    def slots_of_a_new_actor(size: int) -> list[int]:
        actor = FakeActor(serving.addresses[1])
        actor.start(size)
        slots = serving.inference.requests[-1].slots.tolist()
        actor.close()
        return slots

    # The answer that is held back still has its memory.
    assert (held.outputs.rewards == HELD).all()
    assert slots_of_a_new_actor(2) == [2, 3]
    serving.batcher.wait_for_connected(0)
    held.reply(np.array([0, 0]))
    assert slots_of_a_new_actor(3) == [0, 1, 2]


def test_connections_to_a_port_are_spread_over_the_processes() -> None:
    """The system spreads them, so killing one of two takes some of many streams, and not all."""
    with serving_at("127.0.0.1:0", num_processes=2) as (server, addresses, failures):
        (address,) = addresses
        actors = [FakeActor(address) for _ in range(32)]
        for actor in actors:
            actor.say_hello(1)
        killed = server.pids[0]
        os.kill(killed, signal.SIGKILL)
        wait_for_end(killed)
        survivors = Visitor(address, 1, spec=SPEC).welcome.envs_connected
        assert 1 < survivors < 32
        assert failures.empty()


def test_process_that_is_killed_again_and_again_ends_the_run(tmp_path: Path) -> None:
    """The error tells what happened; else the process would be restarted for ever."""
    address = f"unix:{tmp_path / 'sock'}"
    with serving_at(address, num_processes=1) as (server, _, failures):
        for _ in range(4):
            assert failures.empty()
            Visitor(address, 1, spec=SPEC).vanish()
            os.kill(server.pids[0], signal.SIGKILL)
        error = failures.get(timeout=TIMEOUT_S)
    assert isinstance(error, SeedError)
    assert str(error) == (
        "ingress process 0 was killed 4 times, each within 60 s of its start, at last by signal 9"
    )


_LEARNER = """
import sys
from learner.serving.ingress.handle import IngressProcesses
from tests.learner.serving.ingress.test_handle import reception
if __name__ == "__main__":
    server = IngressProcesses(reception(), [sys.argv[1]], print, num_processes=2)
    server.start()
    print(*server.pids, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def learner(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process with two ingress processes, whose ids it prints; it ends when its stdin does."""
    program = tmp_path / "serve.py"
    program.write_text(_LEARNER)
    with subprocess.Popen(
        [sys.executable, program, f"unix:{tmp_path / 'sock'}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.fspath(ROOT)},
    ) as process:
        yield process
        process.kill()


def ingress_pids(learner: subprocess.Popen[bytes]) -> list[int]:
    """Returns the ids that the learner prints once it serves."""
    assert learner.stdout is not None
    pids = [int(word) for word in learner.stdout.readline().split()]
    assert len(pids) == 2
    return pids


def test_processes_end_with_a_killed_learner(
    tmp_path: Path, learner: subprocess.Popen[bytes]
) -> None:
    """The processes end by themselves, and their actors get a status to retry on."""
    pids = ingress_pids(learner)
    actor = FakeActor(f"unix:{tmp_path / 'sock'}")
    actor.say_hello(2)
    actor.send(first(2))
    learner.kill()
    for pid in pids:
        wait_for_end(pid)
    assert isinstance(error_from_status(*actor.status()), LearnerUnavailableError)
    actor.close()


def test_learner_that_ends_without_closing_them_does_not_hang(
    learner: subprocess.Popen[bytes],
) -> None:
    """At its exit Python waits for child processes, for example after an error of its own."""
    pids = ingress_pids(learner)
    assert learner.stdin is not None
    learner.stdin.close()
    assert learner.wait(TIMEOUT_S) == 0
    for pid in pids:
        wait_for_end(pid)


def test_processes_have_no_torch(serving: Serving) -> None:
    """torch would make each of them five times as large."""
    for pid in serving.ingress_pids:
        assert "libtorch" not in Path(f"/proc/{pid}/maps").read_text()


def test_learner_tells_how_busy_they_are(serving: Serving) -> None:
    """A report can then say that serving limits the run."""
    assert serving.metrics.drain()["time/server_busy_share"] >= 0


def files_mapped_by(pid: int | str) -> set[str]:
    """Returns the inodes of actors' memory that a process has mapped."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split()[4] for line in lines if "seed-actor" in line}


def test_memory_of_an_actor_is_gone_with_it(serving: Serving) -> None:
    """It is gone in the learner and in the ingress process."""
    gone: set[str] = set()
    for sizes in ((2, 1), (1,), (1, 1)):
        visitor = Visitor(serving.addresses[0], *sizes, spec=SPEC)
        visitor.play(2)
        (file,) = files_mapped_by(serving.ingress_pids[0])
        assert file in files_mapped_by("self")
        assert not gone & files_mapped_by("self")
        gone.add(file)
        # The fake inference thread keeps its requests, and the newest until the next comes.
        serving.inference.requests.clear()
        visitor.leave()
        serving.batcher.wait_for_connected(0)


def test_address_is_served_over_loopback_by_name() -> None:
    """A name may stand for several addresses, and the machine need not have all of them."""
    with serving_at("localhost:0", num_processes=1) as (_, addresses, failures):
        (address,) = addresses
        assert address.startswith("localhost:") and not address.endswith(":0")
        with grpc.insecure_channel(address) as channel:
            grpc.channel_ready_future(channel).result(TIMEOUT_S)
        assert failures.empty()
