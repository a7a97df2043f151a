"""Records pass a pipe whole and in order, and a closed end is noticed."""

import os

import pytest

from seed.step_notices import ANSWERS, STEPS, AnswerNotice, StepNotice
from tests.learner.builders import TIMEOUT_S, in_thread


def test_more_records_than_a_pipe_holds_come_whole_and_in_order() -> None:
    """The writer waits for the reader."""
    reader, writer = os.pipe()
    sent = [StepNotice(slot, slot % 7, slot / 3, slot % 2 == 0) for slot in range(10_000)]
    writing = in_thread(STEPS.write, writer, sent)
    received: list[StepNotice] = []
    while len(received) < len(sent):
        received += map(StepNotice._make, STEPS.read(reader))
    assert received == sent
    writing.result(TIMEOUT_S)
    os.close(writer)
    assert not STEPS.read(reader)
    os.close(reader)


def test_writing_without_a_reader_is_an_error() -> None:
    """No signal ends the process."""
    reader, writer = os.pipe()
    os.close(reader)
    with pytest.raises(BrokenPipeError):
        ANSWERS.write(writer, [AnswerNotice(3)])
    os.close(writer)
