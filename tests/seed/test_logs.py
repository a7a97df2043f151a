"""The log in JSON has one object a line, for any record."""

import json
import logging
import multiprocessing
import sys

import pytest

from seed.errors import ConfigError
from seed.logs import json_log, portable_record

_LOG = logging.getLogger("seed.test")


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    """Returns the objects on stderr, without their times."""
    records = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    for record in records:
        assert record.pop("time").endswith("+00:00")
    return records


def test_record_is_one_object_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """It has the level and the process, with arguments filled in and line breaks kept."""
    with json_log("learner"):
        _LOG.info("saved %s\nin %d s", "ä", 3)
        _LOG.debug("not shown")
    assert lines(capsys) == [{"level": "INFO", "process": "learner", "message": "saved ä\nin 3 s"}]


def test_traceback_is_a_field(capsys: pytest.CaptureFixture[str]) -> None:
    """The field is in the record that reports the exception."""
    with json_log("actor"):
        try:
            raise ZeroDivisionError("by nothing")
        except ZeroDivisionError:
            _LOG.exception("no checkpoint this time")
    (record,) = lines(capsys)
    assert (record["level"], record["message"]) == ("ERROR", "no checkpoint this time")
    assert record["exception"].startswith("Traceback") and "by nothing" in record["exception"]


def test_record_of_another_process_is_as_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """The record comes from the trainer process, and its traceback is a field too."""
    try:
        raise ZeroDivisionError("by nothing")
    except ZeroDivisionError:
        made = _LOG.makeRecord("x", logging.ERROR, "", 1, "update %d", (7,), sys.exc_info())
    there, here = multiprocessing.Pipe()
    there.send(portable_record(made))
    with json_log("learner"):
        _LOG.handle(here.recv())
    (record,) = lines(capsys)
    assert record["message"] == "update 7"
    assert record["exception"].startswith("Traceback") and "by nothing" in record["exception"]


def test_error_that_ends_the_process_is_logged_last(capsys: pytest.CaptureFixture[str]) -> None:
    """A bug has its traceback, a user's error one sentence, and both are raised further."""
    with pytest.raises(ConfigError), json_log("actor"):
        raise ConfigError("listen: expected b, got c")
    with pytest.raises(ZeroDivisionError), json_log("actor"):
        raise ZeroDivisionError("by nothing")
    user, bug = lines(capsys)
    plain = {"level": "CRITICAL", "process": "actor", "message": "listen: expected b, got c"}
    assert user == plain
    assert bug["level"] == "CRITICAL" and "Traceback" in bug["exception"]


def test_nothing_is_written_in_json_after_the_context(capsys: pytest.CaptureFixture[str]) -> None:
    """The former handlers of the log are back."""
    with json_log("actor"):
        pass
    _LOG.info("unseen")
    assert lines(capsys) == []
