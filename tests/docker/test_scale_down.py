"""docker/k8s/base/scale_down.py against an API server over TLS that answers from a list."""

import contextlib
import json
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.tools import DOCKER
from tools.make_certs import make_certs

SCRIPT = DOCKER / "k8s" / "base" / "scale_down.py"
JOB = "/apis/batch/v1/namespaces/seed/jobs/learner-pong"
SCALE = "/apis/apps/v1/namespaces/seed/deployments/actor-pong/scale"
TIMEOUT_S = 60.0


class Call(NamedTuple):
    """One request that the API server got."""

    method: str
    path: str
    token: str | None
    body: Any


class FakeApi:
    """Answers GET with the next of `answers`, the last one for ever, and PATCH with success."""

    def __init__(self, certs: Path, answers: list[tuple[int, str]]) -> None:
        self.calls: list[Call] = []
        self.answers = answers
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certs / "learner.pem", certs / "learner.key")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        """Ends the server."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, call: Call) -> tuple[int, str]:
        self.calls.append(call)
        if call.method == "PATCH":
            return 200, "{}"
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        answer = self._answer

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                body = json.loads(self.rfile.read(length)) if length else None
                token = self.headers.get("Authorization")
                code, text = answer(Call(self.command, self.path, token, body))
                self.send_response(code)
                self.end_headers()
                self.wfile.write(text.encode())

            do_PATCH = do_GET

            def log_message(self, format: str, *args: object) -> None:
                """Prints nothing."""

        return Handler


def status(**conditions: str) -> tuple[int, str]:
    """Returns the answer about a Job with these conditions."""
    listed = [{"type": name, "status": value} for name, value in conditions.items()]
    return 200, json.dumps({"status": {"conditions": listed} if listed else {}})


ABSENT = (404, '{"kind": "Status"}')
RUNNING = status()


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a directory of certificates for 127.0.0.1."""
    directory = tmp_path_factory.mktemp("certs") / "certs"
    make_certs(directory, ["api"])
    return directory


@pytest.fixture
def account(certs: Path, tmp_path: Path) -> Path:
    """Returns the files of a service account, as Kubernetes mounts them."""
    (tmp_path / "namespace").write_text("seed")
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "ca.crt").write_bytes((certs / "ca.pem").read_bytes())
    return tmp_path


@contextlib.contextmanager
def served(certs: Path, *answers: tuple[int, str]) -> Iterator[FakeApi]:
    """Runs an API server."""
    api = FakeApi(certs, list(answers))
    try:
        yield api
    finally:
        api.close()


@contextlib.contextmanager
def scale_down(api: FakeApi, account: Path) -> Iterator[subprocess.Popen[str]]:
    """Runs the script in an environment with a proxy that does not exist."""
    command = [sys.executable, "-I", SCRIPT, "learner-pong", "actor-pong"]
    flags = ["--every-s", "0.01", "--account", account]
    environment = {
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(api.port),
        "HTTPS_PROXY": "http://127.0.0.1:9",
    }
    process = subprocess.Popen(
        [*map(str, (*command, *flags))],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def run_to_the_end(api: FakeApi, account: Path) -> tuple[str, str]:
    """Returns what the script prints to stdout and stderr; its exit code must be 0."""
    with scale_down(api, account) as process:
        out, err = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, err
    return out, err


@pytest.mark.parametrize("end", ["Complete", "Failed"])
def test_actors_are_scaled_to_nothing_once_the_job_has_ended(
    end: str, certs: Path, account: Path
) -> None:
    """The script asks until then, scales once, and calls nothing else."""
    with served(certs, RUNNING, RUNNING, status(**{end: "True"})) as api:
        out, err = run_to_the_end(api, account)
    assert f"job learner-pong is {end}: scaled deployment actor-pong to 0" in out
    assert err == ""
    asked = Call("GET", JOB, "Bearer first", None)
    scaled = Call("PATCH", SCALE, "Bearer first", {"spec": {"replicas": 0}})
    assert api.calls == [asked, asked, asked, scaled]


@pytest.mark.parametrize(
    "answer",
    [
        ABSENT,
        status(Suspended="True"),
        status(Complete="False"),
        # Pods of the Job still run.
        status(FailureTarget="True", SuccessCriteriaMet="True"),
        (500, "{}"),
        (403, "{}"),
        (200, "no JSON"),
    ],
    ids=["absent", "suspended", "not complete", "ending", "error", "forbidden", "no JSON"],
)
def test_job_that_has_not_ended_leaves_the_actors_alone(
    answer: tuple[int, str], certs: Path, account: Path
) -> None:
    """An owner deletes the Job to start it again, and an API server may be away for a while."""
    with served(certs, answer, answer, answer, status(Complete="True")) as api:
        run_to_the_end(api, account)
    assert [call.method for call in api.calls] == ["GET"] * 4 + ["PATCH"]


def test_problem_is_said_once(certs: Path, account: Path) -> None:
    """A log of hours without an answer has one line for each kind of problem."""
    with served(certs, *[ABSENT] * 5, status(Complete="True")) as api:
        _, err = run_to_the_end(api, account)
    wanted = "cannot scale down actor-pong yet, trying again: HTTP Error 404: Not Found\n"
    assert err == wanted


def test_token_that_is_replaced_is_read_again(certs: Path, account: Path) -> None:
    """Kubernetes writes a new token into the file within an hour."""
    with served(certs, RUNNING) as api, scale_down(api, account) as process:
        wait_for_calls(api, 1)
        (account / "token").write_text("second\n")
        api.answers.append(status(Complete="True"))
        process.communicate(timeout=TIMEOUT_S)
    assert api.calls[0].token == "Bearer first"
    assert api.calls[-1].token == "Bearer second"


def wait_for_calls(api: FakeApi, count: int) -> None:
    """Waits until the API server has got so many calls."""
    pause, waited_s = threading.Event(), 0.0
    while len(api.calls) < count:
        assert waited_s < TIMEOUT_S
        pause.wait(0.02)
        waited_s += 0.02


def test_server_of_another_ca_gets_no_token(certs: Path, account: Path, tmp_path: Path) -> None:
    """The script speaks to no server that the cluster's CA does not vouch for."""
    make_certs(tmp_path / "other", ["api"])
    (account / "ca.crt").write_bytes((tmp_path / "other" / "ca.pem").read_bytes())
    with served(certs, status(Complete="True")) as api, scale_down(api, account) as process:
        assert process.stderr is not None
        assert "CERTIFICATE_VERIFY_FAILED" in process.stderr.readline()
        assert api.calls == []
