"""actors/client.py against a real gRPC server on a Unix socket."""

import threading
from pathlib import Path

import numpy as np
import pytest

from actors.client import PolicyStream, fetch_task, open_channel
from actors.envs import make_group
from actors.group import EnvGroup
from actors.shared_steps import open_shared
from seed.env_config import EnvConfig
from seed.errors import IncompatibleError, LearnerUnavailableError, SpecError, WireError
from seed.pb import inference_pb2 as pb
from seed.step_memory import MEMORY_METADATA
from seed.wire import EnvOutputs, Hello
from tests.actors.fake_learner import FakeLearner, serving

_TIMEOUT_S = 10


@pytest.fixture
def address(tmp_path: Path) -> str:
    """Returns the address of a Unix socket that only this test uses."""
    return f"unix:{tmp_path}/learner.sock"


def _group(env_id: str = "seed/Catch-v0", num_envs: int = 2) -> tuple[EnvGroup, Hello]:
    group = make_group(EnvConfig(env_id=env_id), index=0, num_envs=num_envs, base_seed=1)
    hello = Hello(run_id="run", role=pb.ROLE_EVAL, group_sizes=(group.num_envs,), spec=group.spec)
    return group, hello


def test_steps_reach_the_learner_and_actions_come_back(address: str) -> None:
    """Every field of a step and of the hello reaches the learner, and the actions come back."""
    learner = FakeLearner(policy=lambda outputs: np.array([2, 1]))
    group, hello = _group()
    with (
        serving(learner, address),
        open_channel(address, hello) as channel,
        PolicyStream(channel, hello, _TIMEOUT_S) as stream,
    ):
        assert stream.welcome.run_name == "fake"
        sent = group.reset()
        for _ in range(10):
            stream.send(sent)
            index, actions = stream.receive()
            assert index == 0
            np.testing.assert_array_equal(actions, [2, 1])
            np.testing.assert_array_equal(learner.outputs[-1].observations[0], sent.observations[0])
            sent = group.step(actions)
    assert learner.hellos == [hello]
    assert [e.length for row in learner.outputs for e in row.episodes] == [9, 9]


def test_learner_that_shares_no_memory_gets_steps_by_grpc(address: str) -> None:
    """The client asks; an older learner, or one on another machine, does not offer memory."""
    group, hello = _group()
    with (
        serving(FakeLearner(policy=lambda outputs: np.array([2, 1])), address),
        open_channel(address, hello) as channel,
        PolicyStream(channel, hello, _TIMEOUT_S, shares_memory=True) as stream,
    ):
        stream.send(group.reset())
        index, actions = stream.receive()
        assert (index, actions.tolist()) == (0, [2, 1])


def test_actor_uses_grpc_where_the_memory_cannot_be_opened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In another container the offered paths do not exist, or are other files."""
    file = tmp_path / "file"
    file.write_text("something else")
    link = tmp_path / "link"
    link.symlink_to(file)
    _, hello = _group()
    for path in (tmp_path / "nothing", file, link):
        assert open_shared([(MEMORY_METADATA, f"{path} {path} {path}")], hello) is None
        assert str(path) in caplog.messages[-1]
    assert open_shared([("something", "else")], hello) is None


def test_messages_larger_than_grpcs_default_limit_travel(address: str) -> None:
    """The limit follows from the spec: 1000 Atari screens are 7 MB."""
    group, hello = _group("seed/Null-v0", num_envs=1000)
    with (
        serving(FakeLearner(), address),
        open_channel(address, hello) as channel,
        PolicyStream(channel, hello, _TIMEOUT_S) as stream,
    ):
        stream.send(group.reset())
        assert len(stream.receive()[1]) == 1000


def test_answer_larger_than_the_spec_allows_is_refused(address: str) -> None:
    """A broken learner cannot make an actor read more than its actions take."""
    group, hello = _group()
    with (
        serving(FakeLearner(policy=lambda outputs: np.zeros(100_000)), address),
        open_channel(address, hello) as channel,
        PolicyStream(channel, hello, _TIMEOUT_S) as stream,
        pytest.raises(IncompatibleError, match="larger than max"),
    ):
        stream.send(group.reset())
        stream.receive()


def test_step_larger_than_the_spec_allows_is_not_sent(address: str) -> None:
    """The environment whose observations outgrow its spec gets the error."""
    _, hello = _group("seed/Null-v0")
    too_many, _ = _group("seed/Null-v0", num_envs=100)
    with (
        serving(FakeLearner(), address),
        open_channel(address, hello) as channel,
        PolicyStream(channel, hello, _TIMEOUT_S) as stream,
        pytest.raises(IncompatibleError, match="larger than max"),
    ):
        stream.send(too_many.reset())
        stream.receive()


def test_task_is_fetched(address: str) -> None:
    """GetTask tells the actor what to run."""
    with serving(FakeLearner("CartPole-v1"), address), open_channel(address) as channel:
        assert fetch_task(channel, pb.ROLE_TRAIN, _TIMEOUT_S).env_id == "CartPole-v1"


def test_learner_of_another_version_is_refused(address: str) -> None:
    """The error names both versions."""
    learner = FakeLearner()
    learner.task.protocol_version = 2
    with (
        serving(learner, address),
        open_channel(address) as channel,
        pytest.raises(IncompatibleError, match=r"protocol_version: .*actor's 1.*learner's 2"),
    ):
        fetch_task(channel, pb.ROLE_TRAIN, _TIMEOUT_S)


def test_task_without_environments_is_refused(address: str) -> None:
    """The error names the field."""
    learner = FakeLearner()
    learner.task.num_groups = 0
    with (
        serving(learner, address),
        open_channel(address) as channel,
        pytest.raises(WireError, match="num_groups: expected at least 1, got 0"),
    ):
        fetch_task(channel, pb.ROLE_TRAIN, _TIMEOUT_S)


def test_absent_learner_is_unavailable(address: str) -> None:
    """A socket that no process serves is an error that waiting may cure."""
    with open_channel(address) as channel, pytest.raises(LearnerUnavailableError):
        fetch_task(channel, pb.ROLE_TRAIN, _TIMEOUT_S)


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (IncompatibleError("action.num_values: expected 3, got 2"), IncompatibleError),
        (SpecError("observations: expected this, got that"), WireError),
        (LearnerUnavailableError("the learner is stopping"), LearnerUnavailableError),
    ],
    ids=lambda value: "",
)
def test_refused_hello_raises_with_the_learners_reason(
    address: str, refusal: SpecError, error: type[Exception]
) -> None:
    """The status that ended the stream becomes an error of `seed.errors` with its details."""
    _, hello = _group()
    with (
        serving(FakeLearner(refusal=refusal), address),
        open_channel(address, hello) as channel,
        pytest.raises(error, match=str(refusal)),
    ):
        PolicyStream(channel, hello, _TIMEOUT_S)


def test_learner_that_stops_ends_a_waiting_receive(address: str) -> None:
    """A blocked `receive` raises as soon as the server goes."""
    received = threading.Event()

    def never(outputs: EnvOutputs) -> np.ndarray:
        received.set()
        threading.Event().wait(_TIMEOUT_S)
        raise AssertionError

    group, hello = _group()
    server = serving(FakeLearner(policy=never), address)
    server.__enter__()
    with (
        open_channel(address, hello) as channel,
        PolicyStream(channel, hello, _TIMEOUT_S) as stream,
    ):
        stream.send(group.reset())
        assert received.wait(_TIMEOUT_S)
        stopper = threading.Thread(target=server.__exit__, args=(None, None, None))
        stopper.start()
        with pytest.raises(LearnerUnavailableError):
            stream.receive()
        stopper.join()


def test_learner_that_does_not_welcome_in_time_is_unavailable(address: str) -> None:
    """A hello without an answer is given up after the timeout, which the error names."""
    silence = threading.Event()

    class Silent(FakeLearner):
        def Act(self, request_iterator, context):
            silence.wait(_TIMEOUT_S)
            yield from ()

    _, hello = _group()
    with (
        serving(Silent(), address),
        open_channel(address, hello) as channel,
        pytest.raises(LearnerUnavailableError, match=r"no welcome in 0\.1 s"),
    ):
        try:
            PolicyStream(channel, hello, 0.1)
        finally:
            silence.set()


def test_close_lets_the_learner_see_the_end_of_the_stream(address: str) -> None:
    """Leaving the context ends the learner's request iterator, and not only the socket."""
    learner = FakeLearner()
    group, hello = _group()
    with serving(learner, address), open_channel(address, hello) as channel:
        with PolicyStream(channel, hello, _TIMEOUT_S) as stream:
            stream.send(group.reset())
        assert learner.streams_ended.acquire(timeout=_TIMEOUT_S)
    assert len(learner.outputs) == 1
    assert learner.streams_closed == 1
