"""A run whose learner is open to the network: which actors and commands get in.

One `seed train` with TLS for both sides, a token, metrics and a log in JSON serves all
tests of this file, and one whose actors are served by processes of their own; in the end
they must have noticed nothing of what was tried.
"""

import json
import re
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from actors.main import main as actor_main
from seed import cli
from tests.support.processes import ENDLESS, TIMEOUT_S, Process, command


class Fleet(NamedTuple):
    """A run under way with one local actor."""

    process: Process
    run_dir: Path
    address: str
    metrics_url: str


@pytest.fixture(scope="module", params=[0, 2], ids=["thread", "processes"])
def fleet(
    request: pytest.FixtureRequest, certs: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    """Starts the run; at the end checks that it stops in order and has printed no secret."""
    run_dir = tmp_path_factory.mktemp("fleet") / "run"
    process = Process(
        *("train", "cartpole-vtrace", "--run-dir", run_dir, *ENDLESS, "--report-every-s", 0.5),
        *("--listen", "127.0.0.1:0", "--tls-ca", certs / "ca.pem"),
        *("--tls-cert", certs / "learner.pem", "--tls-key", certs / "learner.key"),
        *("--token-file", certs / "token", "--metrics-port", 0, "--log-format", "json"),
        *("--ingress-processes", request.param),
    )
    try:
        metrics_url = process.read_until(r"metrics at (http://127\.0\.0\.1:\d+/metrics)")[1]
        address = process.read_until(r"listening on (127\.0\.0\.1:\d+)")[1]
        process.read_until(r"1 actors")
        yield Fleet(process, run_dir, address, metrics_url)
        assert process.end(signal.SIGTERM) == 0, process.output
        _check_output(process.output, run_dir, (certs / "token").read_text().strip())
    finally:
        process.end(signal.SIGKILL)


def _check_output(output: str, run_dir: Path, token: str) -> None:
    *lines, farewell = output.splitlines()
    assert farewell.startswith("saved in ")  # The output of stdout.
    for line in lines:
        record = json.loads(line)
        assert set(record) == {"time", "level", "process", "message"}, line
        assert record["process"] == "learner"
    written = [path for path in run_dir.rglob("*") if path.is_file()]
    assert written and not any(token.encode() in path.read_bytes() for path in written)
    assert token not in output


def actor_flags(address: str, certs: Path, **changed: Path | None) -> list[str]:
    """Returns the flags of an actor that fits, with some replaced; None leaves a flag out."""
    flags: dict[str, Path | None] = {
        "tls_ca": certs / "ca.pem",
        "tls_cert": certs / "actor.pem",
        "tls_key": certs / "actor.key",
        "token_file": certs / "token",
    }
    given = [
        f"--{name.replace('_', '-')}={value}" for name, value in (flags | changed).items() if value
    ]
    return ["--learner", address, *given]


def test_remote_actor_joins_beside_the_local_one(fleet: Fleet, certs: Path) -> None:
    """The remote actor uses mutual TLS, the local one its private socket; /metrics counts both."""
    actor = Process("actor", *actor_flags(fleet.address, certs), "--metrics-port", 0)
    try:
        url = actor.read_until(r"metrics at (http://\S+)")[1]
        actor.read_until("connected to run")
        fleet.process.read_until("2 actors")
        with urllib.request.urlopen(fleet.metrics_url, timeout=TIMEOUT_S) as answer:
            assert "\nseed_actors_connected 2.0\n" in answer.read().decode()
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            assert "\nseed_actor_connections_total 1.0\n" in answer.read().decode()
    finally:
        assert actor.end(signal.SIGTERM) == 0, actor.output
    fleet.process.read_until("1 actors")


Change = Callable[[Path, Path], dict[str, Path | None]]

REFUSED: dict[str, tuple[Change, str]] = {
    "no token": (lambda ours, other: {"token_file": None}, "token_file: .*, got none"),
    "wrong token": (
        lambda ours, other: {"token_file": other / "token"},
        "token_file: expected the token that the learner was given, got another one",
    ),
    "wrong CA": (
        lambda ours, other: {"tls_ca": other / "ca.pem"},
        "tls_ca: expected a learner whose certificate .* vouches for, got unable to get local",
    ),
    "no certificate": (
        lambda ours, other: {"tls_cert": None, "tls_key": None},
        "tls_cert: expected a certificate, as this learner asks for",
    ),
    "stranger's certificate": (
        lambda ours, other: {"tls_cert": other / "actor.pem", "tls_key": other / "actor.key"},
        "tls_cert: expected a certificate that the learner's --tls-ca vouches for",
    ),
    "plain text": (
        lambda ours, other: dict.fromkeys(("tls_ca", "tls_cert", "tls_key")),
        "tls_ca: expected the CA of this learner, which speaks TLS",
    ),
}


@pytest.mark.parametrize(("change", "words"), REFUSED.values(), ids=REFUSED)
def test_actor_that_may_not_join_ends_and_says_why(
    fleet: Fleet,
    certs: Path,
    other_certs: Path,
    capsys: pytest.CaptureFixture[str],
    change: Change,
    words: str,
) -> None:
    """It exits 1 with the flag's name, at the first attempt, and the run goes on."""
    assert actor_main(actor_flags(fleet.address, certs, **change(certs, other_certs))) == 1
    errors = capsys.readouterr().err
    assert re.search(f"^seed actor: {words}", errors, re.MULTILINE), errors
    assert "reconnecting" not in errors and "Traceback" not in errors
    fleet.process.read_until("1 actors")


def test_actor_logs_in_json_why_it_may_not_join(
    fleet: Fleet, certs: Path, other_certs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A collector of a fleet's logs can then read it."""
    flags = actor_flags(fleet.address, certs, token_file=other_certs / "token")
    assert actor_main([*flags, "--log-format", "json"]) == 1
    record = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert (record["level"], record["process"]) == ("CRITICAL", "actor")
    assert record["message"].startswith("token_file: expected the token")


def test_health_command_needs_tls_but_no_token(
    fleet: Fleet, certs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A container calls it beside the learner."""
    flags = actor_flags(fleet.address, certs, token_file=None)[2:]
    assert cli.main(["health", fleet.address, *flags]) == 0
    assert capsys.readouterr().out == "SERVING\n"


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_learner_does_not_open_itself_to_the_network(tmp_path: Path, log_format: str) -> None:
    """Without TLS and a token it exits before anything is built, and says what is missing."""
    flags = ("--listen", "0.0.0.0:0", "--run-dir", tmp_path / "run", "--log-format", log_format)
    done = subprocess.run(
        command("learner", "cartpole-vtrace", *flags),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 2
    *_, line = done.stderr.splitlines()
    told = json.loads(line)["message"] if log_format == "json" else line
    for flag in ("listen", "--tls-cert", "--tls-key", "--token-file", "--insecure", "0.0.0.0:0"):
        assert flag in told
    assert not (tmp_path / "run").exists()
