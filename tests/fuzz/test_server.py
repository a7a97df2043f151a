"""Random bytes to a real server cost their sender the stream, and no other actor a step."""

from collections.abc import Iterator

import grpc
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.profiles import QUICK
from tests.learner.serving.support import (
    INVALID,
    PRECONDITION,
    FakeActor,
    Serving,
    first,
    hello,
    sign,
    step,
)

# Each example is a stream of its own.
STREAMS = settings(QUICK, max_examples=100)

# A mutant may be as valid as the original; then the stream ends with status OK.
ENDS = {grpc.StatusCode.OK, INVALID, PRECONDITION}

MESSAGES = {
    "hello": hello(2, 1).SerializeToString(),
    "first": first(2).SerializeToString(),
    "step": step(2).SerializeToString(),
    "sign": sign(group=1, envs_ready=3).SerializeToString(),
}


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One server serves all examples, so that later examples meet what earlier ones left behind."""
    serving = Serving(tmp_path_factory.mktemp("fuzz"))
    yield serving
    serving.close()


@pytest.fixture(scope="module")
def neighbour(serving: Serving) -> Iterator[FakeActor]:
    """An actor that is served during all examples."""
    actor = FakeActor(serving.address, timeout_s=600.0)
    actor.start(1)
    yield actor
    actor.close()


def play(serving: Serving, neighbour: FakeActor, messages: list[bytes]) -> grpc.StatusCode:
    """Sends messages on a stream of their own; returns how it ends.

    The neighbour gets its actions before, meanwhile and after.
    """
    stranger = FakeActor(serving.address)
    for number, message in enumerate(messages):
        stranger.send(message)
        assert_served(neighbour, number)
    stranger.finish_sending()
    code, _ = stranger.status()
    assert_served(neighbour, -1)
    stranger.close()
    return code


def assert_served(actor: FakeActor, number: int) -> None:
    """Asserts that an actor's step is answered, with its own actions."""
    value = float(2 + abs(number) % 2)
    answer = actor.act(step(1, value=value))
    assert np.frombuffer(answer.actions, "<i8").tolist() == [value]


@STREAMS
@given(st.lists(st.binary(max_size=80), min_size=1, max_size=4), st.booleans())
def test_random_bytes_cost_their_sender_the_stream(
    serving: Serving, neighbour: FakeActor, messages: list[bytes], is_known: bool
) -> None:
    """The bytes come as a first message, or after a valid start."""
    start = [MESSAGES["hello"], MESSAGES["first"]] if is_known else []
    assert play(serving, neighbour, start + messages) in {INVALID, PRECONDITION}


@STREAMS
@given(
    order=st.lists(st.sampled_from(sorted(MESSAGES)), min_size=1, max_size=5),
    rng_seed=st.integers(0, 2**32),
    num_changes=st.integers(0, 3),
)
def test_mutants_of_honest_messages_end_with_a_status_that_says_so(
    serving: Serving, neighbour: FakeActor, order: list[str], rng_seed: int, num_changes: int
) -> None:
    """Messages in any order, with bytes changed or an end missing, cause no INTERNAL error."""
    rng = np.random.default_rng(rng_seed)
    messages = []
    for name in order:
        data = bytearray(MESSAGES[name])
        for _ in range(num_changes):
            data[rng.integers(len(data))] = rng.integers(256)
        if num_changes and rng.random() < 0.2:
            del data[rng.integers(len(data)) :]
        messages.append(bytes(data))
    assert play(serving, neighbour, messages) in ENDS
