"""Messages that the server refuses, the status of each refusal, and the actors it affects."""

from typing import NamedTuple

import grpc
import numpy as np
import pytest

from seed.pb import inference_pb2 as pb
from seed.specs import ArraySpec
from seed.wire import MAX_MESSAGE_BYTES
from tests.learner.builders import SPEED, env_spec
from tests.learner.serving.support import (
    HELD,
    INVALID,
    PRECONDITION,
    Serving,
    first,
    hello,
    step,
)

OTHER_SPEC = env_spec(SPEED)


class Violation(NamedTuple):
    """Messages of which the last one ends the stream."""

    messages: list[pb.ActRequest | bytes]
    code: grpc.StatusCode
    details: str
    """How the status details begin: with the field."""


def changed(message: pb.ActRequest, **fields: object) -> pb.ActRequest:
    """Returns a copy of a message in which some fields of its payload are replaced."""
    copy = pb.ActRequest()
    copy.CopyFrom(message)
    payload = getattr(copy, message.WhichOneof("payload") or "")
    for name, value in fields.items():
        if isinstance(value, list):
            del getattr(payload, name)[:]
            getattr(payload, name).extend(value)
        else:
            setattr(payload, name, value)
    return copy


VIOLATIONS = {
    "protocol_version": Violation(
        [changed(hello(2), protocol_version=2)],
        PRECONDITION,
        "protocol_version: expected 1, got 2",
    ),
    "no_hello": Violation([first(2)], INVALID, "payload: expected hello"),
    "empty_message": Violation([pb.ActRequest()], INVALID, "payload: expected hello"),
    "hello_twice": Violation([hello(2), hello(2)], INVALID, "payload: expected env_outputs"),
    "empty_step": Violation([hello(2), pb.ActRequest()], INVALID, "payload: expected env_outputs"),
    "other_spec": Violation(
        [hello(2, spec=OTHER_SPEC)], PRECONDITION, "this run's observations: expected leaves"
    ),
    "no_group": Violation([changed(hello(2), group_sizes=[])], INVALID, "group_sizes: expected"),
    "empty_group": Violation([hello(2, 0)], INVALID, "group_sizes: expected"),
    "no_run_id": Violation([changed(hello(2), run_id="")], INVALID, "run_id: expected"),
    "unknown_role": Violation([changed(hello(2), role=7)], INVALID, "role: expected"),
    "unknown_group": Violation([hello(2), first(2, group=1)], INVALID, "group: expected below 1"),
    "missing_leaf": Violation(
        [hello(2), changed(first(2), observations=[])], INVALID, "observations: expected 1 leaves"
    ),
    "short_observation": Violation(
        [hello(2), changed(first(2), observations=[bytes(20)])],
        INVALID,
        "observations['observation']: expected 24 bytes for float32 [2, 3], got 20 bytes",
    ),
    "long_rewards": Violation(
        [hello(2), changed(first(2), rewards=bytes(12))],
        INVALID,
        "rewards: expected 8 bytes for float32 [2], got 12 bytes",
    ),
    "short_flags": Violation(
        [hello(2), changed(first(2), step_flags=b"\1")], INVALID, "step_flags: expected 2 bytes"
    ),
    "unknown_flag": Violation(
        [hello(2), changed(first(2), step_flags=b"\1\11")], INVALID, "step_flags: expected sums"
    ),
    "nan_reward": Violation(
        [hello(2), changed(first(2), rewards=np.array([0, np.nan], "<f4").tobytes())],
        INVALID,
        "rewards: expected finite values, got nan",
    ),
    "infinite_reward": Violation(
        [hello(2), changed(first(2), rewards=np.array([-np.inf, 0], "<f4").tobytes())],
        INVALID,
        "rewards: expected finite values, got -inf",
    ),
    "nan_observation_later": Violation(
        [
            hello(2),
            first(2),
            changed(step(2), observations=[np.array([0, 0, 0, 0, 0, np.nan], "<f4").tobytes()]),
        ],
        INVALID,
        "observations['observation']: expected finite values, got nan",
    ),
    "infinite_observation": Violation(
        [hello(2), changed(first(2), observations=[np.full(6, np.inf, "<f4").tobytes()])],
        INVALID,
        "observations['observation']: expected finite values, got inf",
    ),
    "nan_return": Violation(
        [hello(2), changed(first(2), episodes=[pb.Episode(episode_return=np.nan)])],
        INVALID,
        "episodes.episode_return: expected a finite number, got nan",
    ),
    "too_many_episodes": Violation(
        [hello(2), changed(first(2), episodes=[pb.Episode()] * 3)],
        INVALID,
        "episodes: expected at most one for each of 2 environments, got 3",
    ),
    "garbage": Violation([b"\xff" * 100], INVALID, "message: expected an ActRequest"),
    "garbage_later": Violation([hello(2), b"\x0a"], INVALID, "message: expected an ActRequest"),
    "empty_garbage": Violation([b""], INVALID, "payload: expected hello"),
    "endless_group_sizes": Violation(
        [changed(hello(2), group_sizes=[9] * 100_000)],
        INVALID,
        "group_sizes: expected one or more sizes of at least 1, 65536 in all, got 100000 of them",
    ),
    "endless_run_id": Violation(
        [changed(hello(2), run_id="x" * 100_000)],
        INVALID,
        "run_id: expected at most 200 characters, got 100000",
    ),
    "all_the_environments_there_may_be": Violation(
        [hello(30_000, 30_000)],
        PRECONDITION,
        "group_sizes: expected at most 8192 environments in all (max_envs), got 60000",
    ),
    "endless_leaf": Violation(
        [hello(2, 60_000, spec=env_spec(ArraySpec(name="big", dtype="uint8", shape=(10_000,))))],
        INVALID,
        "group_sizes: expected groups whose observations take at most 268435456 bytes",
    ),
    "oversized": Violation(
        [hello(2), b"\0" * (MAX_MESSAGE_BYTES + 1)],
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "SERVER: Received message larger than max",
    ),
    "first_is_no_start": Violation(
        [hello(2), changed(first(2), step_flags=b"\1\0")],
        INVALID,
        "step_flags: expected IS_FIRST everywhere",
    ),
    "unanswered_group": Violation(
        [hello(2), first(2, value=HELD), step(2)],
        INVALID,
        "group: expected one without an unanswered message, got 0",
    ),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_bad_message_ends_the_stream_of_its_sender_alone(serving: Serving, name: str) -> None:
    """The status names the field; another actor goes on, and the slots serve other actors."""
    violation = VIOLATIONS[name]
    neighbour, actor = serving.actor(), serving.actor()
    neighbour.start(1)
    for message in violation.messages:
        actor.send(message)
    code, details = actor.status()
    assert (code, details[: len(violation.details)]) == (violation.code, violation.details)
    assert np.frombuffer(neighbour.act(step(1, value=3)).actions, "<i8").tolist() == [3]
    serving.batcher.wait_until_connected_are(1)
    assert serving.actor().say_hello(2).envs_connected == 3


def test_stream_that_says_nothing_is_refused(serving: Serving) -> None:
    """A stream must at least say hello."""
    actor = serving.actor()
    actor.finish_sending()
    code, details = actor.status()
    assert code is INVALID
    assert details == "payload: expected hello as the first message, got the end of the stream"
