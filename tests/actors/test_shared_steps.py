"""actors/shared_steps.py: the actor's end of the memory, with a learner of a few lines.

tests/learner/serving/test_local_steps.py joins it to the learner's own end.
"""

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from actors.shared_steps import SharedSteps, open_shared
from seed.pb import inference_pb2 as pb
from seed.specs import ArraySpec, EnvSpec
from seed.step_memory import MEMORY_METADATA, make_file, map_groups, path_of
from seed.step_notices import ANSWERS, STEPS, AnswerNotice, StepNotice
from seed.wire import EnvOutputs, Episode, Hello

_TIMEOUT_S = 10
_HELLO = Hello(
    run_id="run",
    role=pb.ROLE_TRAIN,
    group_sizes=(2, 3),
    spec=EnvSpec(
        observations=(ArraySpec(name="observation", dtype="float32", shape=(2,)),),
        action=ArraySpec(name="action", dtype="int64", num_values=4),
    ),
)
_OUTPUTS = EnvOutputs(
    group=1,
    observations=(np.arange(6, dtype=np.float32).reshape(3, 2),),
    rewards=np.array([1, 2, 3], np.float32),
    is_first=np.array([True, False, False]),
    terminated=np.array([False, True, False]),
    truncated=np.array([False, False, True]),
    episodes=[Episode(1, 4.5, 7)],
    failures=2,
)


class _Learner:
    """Makes memory and pipes as `LocalSteps` does."""

    def __init__(self) -> None:
        self.file = make_file(_HELLO.spec, _HELLO.group_sizes)
        self.groups = map_groups(self.file, _HELLO.spec, _HELLO.group_sizes)
        self.steps, self._steps_end = os.pipe()
        self._answers_end, self.answers = os.pipe()
        places = (self.file, self._steps_end, self._answers_end)
        self.metadata = [(MEMORY_METADATA, " ".join(map(path_of, places)))]

    def close(self) -> None:
        for descriptor in (self.steps, self._steps_end, self.answers, self._answers_end):
            os.close(descriptor)
        os.close(self.file)


@pytest.fixture
def learner() -> Iterator[_Learner]:
    """A learner that offers memory."""
    learner = _Learner()
    yield learner
    learner.close()


@pytest.fixture
def shared(learner: _Learner) -> Iterator[SharedSteps]:
    """The actor's end of the memory that the learner offered."""
    shared = open_shared(learner.metadata, _HELLO)
    assert shared is not None
    yield shared
    shared.close()


def test_step_lies_in_the_memory_of_its_group(learner: _Learner, shared: SharedSteps) -> None:
    """The notice holds the group's number and how many episodes ended."""
    shared.send(_OUTPUTS)
    notices = [StepNotice(*fields) for fields in STEPS.read(learner.steps)]
    assert [(notice.group, notice.num_episodes) for notice in notices] == [(1, 1)]
    got = learner.groups[1].read(1)
    for name in (field.name for field in dataclasses.fields(EnvOutputs)):
        np.testing.assert_array_equal(getattr(got, name), getattr(_OUTPUTS, name))


def test_answers_come_in_the_order_of_their_notices(learner: _Learner, shared: SharedSteps) -> None:
    """Two answers that are read at once stay two answers."""
    learner.groups[0].answer(np.array([1, 2]))
    learner.groups[1].answer(np.array([3, 0, 1]))
    ANSWERS.write(learner.answers, [AnswerNotice(1), AnswerNotice(0)])
    answers = [shared.receive(_TIMEOUT_S) for _ in range(2)]
    assert [(answer[0], answer[1].tolist()) for answer in answers if answer] == [
        (1, [3, 0, 1]),
        (0, [1, 2]),
    ]


def test_no_answer_in_time_is_none(shared: SharedSteps) -> None:
    """The call returns None in time, so that the actor notices a signal between two waits."""
    assert shared.receive(0.01) is None


def test_offer_that_cannot_be_opened_is_logged_and_gone_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The learner may run in another container, where its files have other paths."""
    path = str(tmp_path / "none")
    assert open_shared([(MEMORY_METADATA, f"{path} {path} {path}")], _HELLO) is None
    assert "no memory is shared with the learner" in caplog.text


def test_learner_that_offers_no_memory_gets_none() -> None:
    """The client ignores all other metadata."""
    assert open_shared([("user-agent", "x")], _HELLO) is None
