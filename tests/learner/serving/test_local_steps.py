"""Steps that an actor on this machine passes through memory are served as those over gRPC."""

import dataclasses
import fcntl
import os
import struct
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest

from actors.shared_steps import SharedSteps, open_shared
from seed import wire
from seed.pb import inference_pb2 as pb
from seed.step_memory import MEMORY_METADATA
from seed.step_notices import STEPS, StepNotice
from seed.wire import EnvOutputs, Episode
from tests.learner.builders import TIMEOUT_S, env_outputs
from tests.learner.serving.support import HELD, INVALID, SPEC, FakeActor, Serving, step

WISH = ((MEMORY_METADATA, "wanted"),)


class LocalActor:
    """An actor that asks for memory, and gets it."""

    def __init__(self, address: str, *group_sizes: int) -> None:
        self.stream = FakeActor(address, metadata=WISH)
        self.stream.say_hello(*group_sizes)
        hello = wire.Hello(run_id="run", role=pb.ROLE_TRAIN, group_sizes=group_sizes, spec=SPEC)
        shared = open_shared(self.stream.first_metadata(), hello)
        assert shared is not None
        self.shared: SharedSteps = shared

    def act(self, outputs: EnvOutputs) -> tuple[int, list[int]]:
        """Sends a step, and returns its answer."""
        self.shared.send(outputs)
        answer = self.shared.receive(TIMEOUT_S)
        assert answer is not None
        return answer[0], answer[1].tolist()

    def close(self) -> None:
        """Closes its end without an orderly end of the stream."""
        self.stream.close()
        self.shared.close()


@pytest.fixture
def actor(serving: Serving) -> Iterator[LocalActor]:
    """An actor with groups of 2 and 3 that has not stepped."""
    actor = LocalActor(serving.addresses[0], 2, 3)
    yield actor
    actor.close()


def starting(num_envs: int, *, group: int = 0, value: float = 0.0) -> EnvOutputs:
    """Returns a step that starts every episode of a group."""
    outputs = env_outputs(num_envs, group=group, value=value)
    return dataclasses.replace(outputs, is_first=np.ones(num_envs, bool))


def test_step_arrives_as_it_was_sent(serving: Serving, actor: LocalActor) -> None:
    """It reaches the slots of its group, and the answer has the group's number."""
    assert actor.act(starting(3, group=1, value=2)) == (1, [2, 2, 2])
    assert serving.inference.requests[-1].is_session_start
    sent = env_outputs(3, group=1, value=1)
    sent.observations[0][:] = np.arange(9).reshape(3, 3)
    sent.terminated[1], sent.truncated[2] = True, True
    sent = dataclasses.replace(sent, episodes=[Episode(env=1, episode_return=4.5, length=7)])
    assert actor.act(sent) == (1, [1, 1, 1])
    request = serving.inference.requests[-1]
    assert request.slots.tolist() == [2, 3, 4]
    assert not request.is_session_start
    assert np.array_equal(request.outputs.observations[0], sent.observations[0])
    assert request.outputs.terminated.tolist() == [False, True, False]
    assert request.outputs.truncated.tolist() == [False, False, True]
    assert request.outputs.episodes == sent.episodes


def with_observation(outputs: EnvOutputs, value: float) -> EnvOutputs:
    """Returns a step with one unusual number in it."""
    outputs.observations[0][1, 2] = value
    return outputs


REFUSED = {
    "infinite_observation": (
        with_observation(starting(2), np.inf),
        "observations['observation']: expected finite values, got inf",
    ),
    "nan_reward": (starting(2, value=np.nan), "rewards: expected finite values, got nan"),
    "nan_return": (
        dataclasses.replace(starting(2), episodes=[Episode(1, np.nan, 3)]),
        "episodes.episode_return: expected a finite number, got nan",
    ),
    "unknown_environment": (
        dataclasses.replace(starting(2), episodes=[Episode(2, 1.0, 3)]),
        "episodes.env: expected below 2, got 2",
    ),
    "first_is_no_start": (env_outputs(2), "step_flags: expected IS_FIRST everywhere"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_step_ends_the_stream_of_its_sender_alone(
    serving: Serving, actor: LocalActor, name: str
) -> None:
    """The status is as for a step that came by gRPC, and the memory is closed."""
    outputs, words = REFUSED[name]
    neighbour = LocalActor(serving.addresses[0], 1)
    neighbour.act(starting(1))
    actor.shared.send(outputs)
    code, details = actor.stream.status()
    assert (code, details[: len(words)]) == (INVALID, words)
    with pytest.raises(EOFError):
        actor.shared.receive(TIMEOUT_S)
    assert neighbour.act(env_outputs(1, value=3)) == (0, [3])
    neighbour.close()


@pytest.mark.parametrize(
    ("notice", "words"),
    [
        (StepNotice(2, 0, 0.0, False), "group: expected below 2, got 2"),
        (StepNotice(-1, 0, 0.0, False), "group: expected below 2, got -1"),
        (StepNotice(0, 3, 0.0, False), "episodes: expected at most one for each of 2"),
    ],
)
def test_notice_of_an_impossible_step_is_refused(
    actor: LocalActor, notice: StepNotice, words: str
) -> None:
    """The memory has no room for the group or the episodes that it names."""
    STEPS.write(actor.shared._steps, [notice])
    code, details = actor.stream.status()
    assert (code, details[: len(words)]) == (INVALID, words)


def test_second_step_of_a_group_that_waits_is_refused(serving: Serving, actor: LocalActor) -> None:
    """The server still reads the first step."""
    actor.shared.send(starting(2, value=HELD))
    held = serving.inference.held.get(timeout=TIMEOUT_S)
    actor.shared.send(env_outputs(2))
    assert actor.stream.status()[1].startswith("group: expected one without an unanswered")
    held.reply(np.zeros(2, np.int64))


def test_actor_that_reads_no_answers_is_refused_once_the_pipe_is_full(
    serving: Serving, actor: LocalActor
) -> None:
    """Other actors do not wait for it."""
    neighbour = LocalActor(serving.addresses[0], 1)
    num_answers = fcntl.fcntl(actor.shared._answers, fcntl.F_SETPIPE_SZ, 4096) // 8
    for count in range(num_answers):
        actor.shared.send(starting(2))
        wait_until_unread(actor.shared._answers, 8 * (count + 1))
    actor.shared.send(starting(2))
    code, details = actor.stream.status()
    assert (code, details[:27]) == (INVALID, "actions: expected those of ")
    assert neighbour.act(starting(1, value=3)) == (0, [3])
    neighbour.close()


def wait_until_unread(pipe: int, num_bytes: int) -> None:
    """Returns once `size` bytes wait in a pipe."""
    give_up = time.monotonic() + TIMEOUT_S
    while struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0] < num_bytes:
        assert time.monotonic() < give_up
        time.sleep(1e-4)


def test_actor_that_cannot_open_the_memory_uses_its_stream(serving: Serving) -> None:
    """An actor in another container sends its steps, and gets its answers, by gRPC."""
    actor = FakeActor(serving.addresses[0], metadata=WISH)
    actor.start(2)
    answer = actor.act(step(2, value=3))
    assert np.frombuffer(answer.actions, "<i8").tolist() == [3, 3]
    actor.close()


def test_memory_is_shared_over_unix_sockets_and_on_request_only(serving: Serving) -> None:
    """Other actors may be on another machine, or older than this offer."""
    actor = serving.actor()
    actor.say_hello(2)
    assert MEMORY_METADATA not in dict(actor.first_metadata())


def test_actor_that_waits_sees_the_end_of_the_learner(serving: Serving, actor: LocalActor) -> None:
    """The actor does not wait for an answer that will not come."""
    actor.shared.send(starting(2, value=HELD))
    held = serving.inference.held.get(timeout=TIMEOUT_S)
    serving.stop_server()
    with pytest.raises(EOFError):
        actor.shared.receive(TIMEOUT_S)
    assert actor.stream.status()[0] is grpc.StatusCode.UNAVAILABLE
    held.reply(np.zeros(2, np.int64))


@pytest.mark.parametrize("ingress_processes", [0], indirect=True)
def test_nothing_stays_open_behind_actors(serving: Serving) -> None:
    """No file, pipe or memory stays open."""

    def held() -> set[str]:
        names = {os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}
        pipes = {name for name in names if name.startswith("pipe:")}
        lines = Path("/proc/self/maps").read_text().splitlines()
        return pipes | {line.split()[4] for line in lines if "seed-actor" in line}

    before = held()
    for _ in range(3):
        actor = LocalActor(serving.addresses[0], 2)
        actor.act(starting(2))
        assert len(held() - before) >= 3
        actor.close()
        del actor
        serving.batcher.wait_for_connected(0)
    # The fake inference thread keeps its requests, and the newest until the next comes.
    serving.inference.requests.clear()
    serving.actor().start(1)
    assert not held() - before
