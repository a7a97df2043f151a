"""What is wrong with addresses that can never work, and the right form that is named."""

import pytest

from seed.tcp_address import is_host, wanted_instead


@pytest.mark.parametrize(
    "address",
    [
        "localhost:1",
        "learner-0.learner.my-space.svc.cluster.local.:50051",
        "my_service:50051",
        "10.0.0.1:65535",
        "[::1]:50051",
        "[fe80::1%eth0]:50051",
        f"{'x' * 63}:1",
    ],
)
def test_right_addresses_have_no_problem(address: str) -> None:
    """Names of Docker and Kubernetes are among them."""
    assert wanted_instead(address, any_port=False) is None


@pytest.mark.parametrize(
    ("address", "right"),
    [
        ("http://h:1", "h:1"),
        ("https://h:1/", "h:1"),
        ("dns:///h:1", "h:1"),
        ("https://", "h:50051"),
        ("h:1/", "h:1"),
        ("h:1/metrics", "h:1"),
        ("unix://", "unix:/PATH"),
        ("unix:///tmp/s", "unix:/tmp/s"),
        ("UNIX:/tmp/s", "unix:/tmp/s"),
        ("unix:", "unix:PATH"),
        ("/tmp/s", "unix:/tmp/s"),
        ("::1:50661", "[::1]:50661"),
        ("2001:db8::1:50051", "[2001:db8::1]:50051"),
        ("::1", "[::1]:50051"),
        ("[::1]", "[::1]:50051"),
        ("learner", "learner:50051"),
        ("10.0.0.1", "10.0.0.1:50051"),
        ("50051", "127.0.0.1:50051"),
        (":50051", "127.0.0.1:50051"),
    ],
)
def test_common_mistakes_are_answered_with_what_is_right(address: str, right: str) -> None:
    """The user can copy it."""
    assert wanted_instead(address, any_port=False) == f"host:port or unix:PATH, such as {right}"


@pytest.mark.parametrize("address", ["a:1, b:2", " b:2", "b:2 ", "h: 1", "a:1\n", "h:1\u00a0"])
def test_spaces_are_named(address: str) -> None:
    """Lists are often written with a space behind the comma."""
    assert wanted_instead(address, any_port=False) == "host:port or unix:PATH without spaces"


@pytest.mark.parametrize(
    "port", ["", "-1", "+5", "65536", "5_0", "0x5", "\u0663", "\u00b2", "grpc"]
)
def test_port_is_a_number_in_ascii(port: str) -> None:
    """Python's int() takes more than gRPC does."""
    wanted = wanted_instead(f"h:{port}", any_port=True)
    assert wanted == "host:port with a port of 0 .. 65535"


def test_port_0_is_for_listeners() -> None:
    """A client has nothing to connect to."""
    assert wanted_instead("h:0", any_port=True) is None
    assert wanted_instead("h:0", any_port=False) == "host:port with a port of 1 .. 65535"


@pytest.mark.parametrize(
    "host",
    [
        "*",
        "l\u00e4rner",
        "user@h",
        "h..x",
        "-h",
        "256.0.0.1",
        "1.2.3",
        "a:1,b",
        "[h]",
        "[::1",
        "h:1",
    ]
    + ["x" * 64, ".".join(["x" * 62] * 5)],
)
def test_host_is_a_name_or_an_ip_address(host: str) -> None:
    """Every character of a name is one that names may have."""
    assert not is_host(host)
    wanted = wanted_instead(f"{host}:1", any_port=False)
    assert wanted == "host:port with a host's name or IP address"
