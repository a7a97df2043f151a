"""The `seed` command as its users run it: a process whose output is read line by line."""

import re
import subprocess
import sys
from collections.abc import Iterator

TIMEOUT_S = 90.0
# The timeout of a run that would else go on for hours.
ENDLESS = ("--total-env-steps", "1000000000")


def command(*args: object) -> list[str]:
    """Returns the words of the command line `seed <args>`."""
    return [sys.executable, "-m", "seed.cli", *map(str, args)]


class Process:
    """A `seed` command whose output is read line by line."""

    def __init__(self, *args: object) -> None:
        self._process = subprocess.Popen(
            command(*args), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.output = ""

    def lines(self) -> Iterator[str]:
        """Yields each line as it comes, until the output ends."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.output += line
            yield line

    def read_until(self, pattern: str) -> re.Match[str]:
        """Blocks until a line matches; the test's own timeout ends a hang."""
        for line in self.lines():
            if match := re.search(pattern, line):
                return match
        raise AssertionError(f"no line matches {pattern!r} in:\n{self.output}")

    def end(self, signal_number: int) -> int:
        """Sends a signal, and returns the exit code."""
        self._process.send_signal(signal_number)
        return self.wait()

    def wait(self) -> int:
        """Returns the exit code once the process has ended; may be called again."""
        if self._process.returncode is None:
            rest, _ = self._process.communicate(timeout=TIMEOUT_S)
            self.output += rest
        return self._process.wait()
