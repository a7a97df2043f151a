"""A fleet of containers for a test: the compose files, run under a project name of their own.

Used by tests/docker/test_fleet.py, which needs an engine and the images (`make docker-test`).
"""

import contextlib
import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.tools import ROOT

# The longest wait for a container: a start takes seconds, and on a busy machine minutes.
TIMEOUT_S = 600.0
_RESTART_POLL_S = 0.2


def docker(*args: object, check: bool = True, **environment: str) -> str:
    """Returns what `docker <args>` prints on both streams; a failure fails the test with it."""
    command = ["docker", *map(str, args)]
    done = subprocess.run(
        command,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0 or not check, f"{' '.join(command)}\n{done.stdout}"
    return done.stdout


class Fleet:
    """The services of some compose files, from `up` to the end of the context.

    Takes its images as they are, and leaves nothing behind.
    """

    def __init__(self, *files: Path, **environment: str) -> None:
        self._files = [part for file in files for part in ("-f", file)]
        self._project = f"seed-test-{os.getpid()}"
        # Free ports, so that a fleet at work is not disturbed.
        free = dict.fromkeys(("SEED_TENSORBOARD_PORT", "SEED_PROMETHEUS_PORT"), "0")
        self._environment = free | environment
        self._read_to = "1970-01-01T00:00:00Z"

    def compose(self, *args: object, check: bool = True) -> str:
        """Returns what `docker compose <args>` prints."""
        project = ("--project-name", self._project)
        return docker("compose", *project, *self._files, *args, check=check, **self._environment)

    def up(self, *, actors: int) -> None:
        """Starts what does not run yet, and returns when the learner is healthy."""
        self.compose("up", "--detach", "--no-build", "--no-recreate", "--scale", f"actor={actors}")

    def container(self, service: str, index: int = 1) -> str:
        """Returns the name of a service's container."""
        return f"{self._project}-{service}-{index}"

    def crash(self, service: str, index: int = 1) -> None:
        """Ends the program as kill -9 does; its restart policy takes it for a crash.

        `docker kill` would count as a wish to stop it.
        """
        docker("exec", self.container(service, index), "sh", "-c", "kill -9 -1", check=False)

    def wait_for_restarts(self, service: str, count: int) -> None:
        """Blocks until the engine has started a service `count` times again."""
        give_up = time.monotonic() + TIMEOUT_S
        inspect = ("inspect", "-f", "{{.RestartCount}}", self.container(service))
        while int(docker(*inspect)) < count:
            assert time.monotonic() < give_up, f"{service} was not started {count} times again"
            time.sleep(_RESTART_POLL_S)

    def wait_for(self, service: str, pattern: str) -> re.Match[str]:
        """Blocks until a line matches that was logged after the last one that did.

        Follows the log over restarts of the container.
        """
        give_up = time.monotonic() + TIMEOUT_S
        lines: list[str] = []
        while (left_s := give_up - time.monotonic()) > 0:
            with _following(self.container(service), self._read_to, left_s) as log:
                for line in log:
                    self._read_to, _, text = line.partition(" ")
                    lines.append(text)
                    if match := re.search(pattern, text):
                        return match
            time.sleep(_RESTART_POLL_S)
        raise AssertionError(f"no line matches {pattern!r} in:\n{''.join(lines[-50:])}")

    def published_port(self, service: str, port: int) -> int:
        """Returns the port of this machine that leads to the service."""
        return int(self.compose("port", service, port).strip().rpartition(":")[2])

    def run_python(self, code: str) -> Any:
        """Returns what `code` prints as JSON, in a new container with the learner's volumes."""
        run = ("run", "--rm", "--no-deps", "--quiet-pull", "--entrypoint", "python", "learner")
        return json.loads(self.compose(*run, "-c", code).splitlines()[-1])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc is not None:
            print(self.compose("logs", "--tail", 30, check=False))
        self.compose("--profile", "*", "down", "--volumes", "--timeout", 5)


@contextlib.contextmanager
def _following(container: str, after: str, timeout_s: float) -> Iterator[Iterator[str]]:
    """Gives "<time> <text>" lines as they are logged, until the container stops or time is over.

    Args:
      container: its name.
      after: the time of the last line that is not wanted any more.
      timeout_s: the longest that the lines are waited for.
    """
    command = ["docker", "logs", "--follow", "--timestamps", "--since", after, container]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        watchdog = threading.Timer(timeout_s, process.kill)
        watchdog.start()
        try:
            assert process.stdout is not None
            # Lines of the moment given as --since are shown.
            yield (line for line in process.stdout if line.partition(" ")[0] > after)
        finally:
            watchdog.cancel()
            process.kill()
