"""What reaches standard output when modules of all kinds print, seen from outside the process."""

import json
import subprocess
import sys

import pytest

from seed.stdout import print_json

_PRINTS_EVERYWHERE = """
import atexit, os, subprocess, sys
from seed.stdout import print_json, stdout_to_stderr

kept = sys.stdout
print("before")
with stdout_to_stderr():
    print("Python")
    kept.write("kept\\n")
    os.write(1, b"native\\n")
    subprocess.run(["echo", "child"], check=True)
    atexit.register(print, "at exit")
    print_json({"loss": float("nan"), "returns": [1.0, float("inf")], "checkpoint": "x"})
    print("later")
print("after")
"""

_LOGS = """
import logging, os, sys, threading
from seed.stdout import log_stdout

logged = threading.Semaphore(0)

class Handler(logging.Handler):
    def emit(self, record):
        sys.stderr.write(f"log: {record.getMessage()}\\n")
        logged.release()

logging.getLogger().setLevel(logging.INFO)
logging.getLogger().addHandler(Handler())
log_stdout()
print("Python")
os.write(1, b"native \\xff\\n")
print("100 %s")
for _ in range(3):
    logged.acquire()
"""


def _run(program: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", program]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)


def test_only_the_result_is_on_stdout() -> None:
    """It is JSON without NaN. Python, native code, children and the end of the process print."""
    done = _run(_PRINTS_EVERYWHERE)
    before, result, after = done.stdout.splitlines()
    assert (before, after) == ("before", "after")
    assert json.loads(result) == {"loss": None, "returns": [1, None], "checkpoint": "x"}
    for word in ("Python", "kept", "native", "child", "at exit", "later"):
        assert f"{word}\n" in done.stderr


def test_result_is_printed_without_a_context_too(capsys: pytest.CaptureFixture[str]) -> None:
    """As by a program that calls a command's main function."""
    print_json({"steps": 3})
    assert json.loads(capsys.readouterr().out) == {"steps": 3}


def test_process_without_stdout_runs() -> None:
    """A service may have closed it."""
    program = "from seed.stdout import stdout_to_stderr\nwith stdout_to_stderr(): print('x')"
    subprocess.run(["sh", "-c", f'exec "{sys.executable}" -c "$0" >&-', program], check=True)


def test_printed_lines_become_records_of_the_log() -> None:
    """Those of native code too, whatever bytes they have."""
    done = _run(_LOGS)
    assert done.stdout == ""
    assert done.stderr.splitlines() == ["log: Python", "log: native \ufffd", "log: 100 %s"]
