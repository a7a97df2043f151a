"""The token and TLS over real gRPC: which calls are let in, and that refused ones disturb none."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from seed.channel import connect
from seed.pb import inference_pb2 as pb
from seed.security import Security
from seed.wire import MAX_MESSAGE_BYTES
from tests.learner.builders import TIMEOUT_S
from tests.learner.serving.support import FakeActor, Serving, first, step
from tests.support.credentials import actor_security, learner_security

UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
NO_TOKEN = "token_file: expected the token that the learner was given, got none"
WRONG_TOKEN = NO_TOKEN.replace("none", "another one")


class Secured(NamedTuple):
    """A server with mutual TLS and a token."""

    tcp: str
    unix: str


@pytest.fixture
def secured(tmp_path: Path, certs: Path, ingress_processes: int) -> Iterator[Secured]:
    """Serves at a TCP address and at a unix socket."""
    security = learner_security(certs, mutual=True, token=True)
    serving = Serving(
        tmp_path, ingress_processes=ingress_processes, security=security, listen=["127.0.0.1:0"]
    )
    yield Secured(*serving.addresses[:2])
    serving.close()


def fetch_task(address: str, security: Security, request: bytes = b"\x08\x01") -> pb.Task:
    """Calls GetTask with the bytes of a request, and raises gRPC's errors."""
    with connect(address, security, [("grpc.max_send_message_length", -1)]) as channel:
        get_task = channel.unary_unary(
            "/seed.v1.Inference/GetTask", response_deserializer=pb.Task.FromString
        )
        return get_task(request, timeout=TIMEOUT_S, metadata=security.metadata)


def refusal_of_task(address: str, security: Security, request: bytes = b"\x08\x01") -> str:
    """Returns the details with which GetTask is UNAUTHENTICATED."""
    with pytest.raises(grpc.RpcError) as caught:
        fetch_task(address, security, request)
    assert isinstance(caught.value, grpc.Call)
    assert caught.value.code() is UNAUTHENTICATED
    return caught.value.details() or ""


def test_actor_with_certificate_and_token_is_served(secured: Secured, certs: Path) -> None:
    """The actor fetches its task and opens its stream over TCP."""
    security = actor_security(certs, own=certs, token=certs)
    assert fetch_task(secured.tcp, security).env_id == "CartPole-v1"
    actor = FakeActor(secured.tcp, security)
    actor.start(2)
    assert actor.act(step(2, value=1)).actions
    actor.close()


def test_unix_socket_is_plain_text_but_wants_the_token(secured: Secured, certs: Path) -> None:
    """Local actors need no certificate, while TCP asks for TLS."""
    assert fetch_task(secured.unix, actor_security(None, token=certs)).env_id == "CartPole-v1"
    assert refusal_of_task(secured.unix, Security()) == NO_TOKEN


def test_calls_without_the_token_are_refused(
    secured: Secured, certs: Path, other_certs: Path
) -> None:
    """This holds for unary calls and streams; the details tell a missing token from a wrong one."""
    for security, words in (
        (actor_security(certs, own=certs), NO_TOKEN),
        (actor_security(certs, own=certs, token=other_certs), WRONG_TOKEN),
    ):
        assert refusal_of_task(secured.tcp, security) == words
        actor = FakeActor(secured.tcp, security)
        assert actor.status() == (UNAUTHENTICATED, words)
        actor.close()


@pytest.mark.parametrize("given", ["{}0", "{:.63}", "", "{0} {0}"])
def test_token_must_be_the_same_to_the_letter(secured: Secured, certs: Path, given: str) -> None:
    """A token that is nearly right is refused."""
    token = given.format((certs / "token").read_text().strip())
    assert refusal_of_task(secured.unix, Security(token=token)) == WRONG_TOKEN


def test_strangers_message_is_not_read(secured: Secured) -> None:
    """A refused call costs no memory, for any size of its message."""
    huge = bytes(MAX_MESSAGE_BYTES + 1)
    assert refusal_of_task(secured.unix, Security(), huge) == NO_TOKEN


def test_unknown_method_is_refused_before_it_is_known_to_be_none(secured: Secured) -> None:
    """A caller without a token learns nothing of the methods that exist."""
    with connect(secured.unix, Security()) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/seed.v1.Inference/NoSuch")(b"", timeout=TIMEOUT_S)
    assert isinstance(caught.value, grpc.Call)
    assert caught.value.code() is UNAUTHENTICATED


def test_health_check_needs_no_token(secured: Secured, certs: Path) -> None:
    """Probes cannot send a token, but need TLS."""
    for address, security in (
        (secured.unix, Security()),
        (secured.tcp, actor_security(certs, own=certs)),
    ):
        with connect(address, security) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            for service in ("", "seed.v1.Inference"):
                request = health_pb2.HealthCheckRequest(service=service)
                answer = stub.Check(  # pyright: ignore[reportAttributeAccessIssue]
                    request, timeout=TIMEOUT_S
                )
                assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_refused_calls_disturb_no_actor(secured: Secured, certs: Path, other_certs: Path) -> None:
    """An actor is served on while other calls fail in every possible way."""
    neighbour = FakeActor(secured.tcp, actor_security(certs, own=certs, token=certs))
    neighbour.start(2)
    strangers = (
        Security(),
        actor_security(certs),
        actor_security(other_certs),
        actor_security(certs, own=other_certs),
        actor_security(certs, own=certs),
        actor_security(certs, own=certs, token=other_certs),
    )
    for round_number in range(3):
        for security in strangers:
            with pytest.raises(grpc.RpcError):
                fetch_task(secured.tcp, security)
        assert neighbour.act(step(2, value=round_number)).actions
    late = FakeActor(secured.tcp, actor_security(certs, own=certs, token=certs))
    assert late.say_hello(3).envs_connected == 5
    assert late.act(first(3)).actions
    for actor in (neighbour, late):
        actor.close()


@pytest.mark.parametrize("ingress_processes", [0], indirect=True)
def test_refusals_are_logged_without_filling_the_log_or_showing_the_token(
    secured: Secured, certs: Path, other_certs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One line comes once in a while, with the address of the caller."""
    wrong = actor_security(certs, own=certs, token=other_certs)
    with caplog.at_level(logging.DEBUG):
        for _ in range(5):
            refusal_of_task(secured.tcp, wrong)
    (message,) = (text for text in caplog.messages if text.startswith("refused a call"))
    assert message.startswith("refused a call from ipv4:127.0.0.1:")
    assert message.endswith(WRONG_TOKEN)
    for directory in (certs, other_certs):
        assert (directory / "token").read_text().strip() not in caplog.text
