"""actors/args.py: what the flags refuse, by the flag's name."""

from pathlib import Path
from typing import Any

import pytest

from actors.args import ActorArgs
from seed.errors import ConfigError

_VIDEO = {"video": Path("x.mp4")}


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ({"learner": "nowhere"}, "learner: expected host:port"),
        ({"learner": "http://h:1"}, "learner: expected host:port or unix:PATH, such as h:1, got"),
        ({"learner": "::1:5"}, r"learner: expected host:port or unix:PATH, such as \[::1\]:5, got"),
        ({"learner": "a:1, b:2"}, "learner: expected host:port or unix:PATH without spaces, got"),
        ({"learner": "a:1,,b:2"}, "learner: expected host:port or unix:PATH, got ''"),
        ({"learner": "a:1,"}, "learner: expected host:port or unix:PATH, got ''"),
        ({"learner": "a:0"}, "learner: expected host:port with a port of 1 .. 65535, got 'a:0'"),
        ({"metrics_host": "[::]"}, "metrics_host: expected an IP address or a host's name"),
        ({"envs_per_group": 0}, "envs_per_group: expected at least 1, got 0"),
        ({"num_groups": 0}, "num_groups: expected at least 1, got 0"),
        ({"env_threads": 0}, "env_threads: expected at least 1, got 0"),
        ({"env_workers": -1}, "env_workers: expected at least 0, got -1"),
        ({"connect_timeout_s": 0.0}, "connect_timeout_s: expected above 0"),
        ({"max_backoff_s": 0.0}, "max_backoff_s: expected above 0"),
        ({**_VIDEO, "envs_per_group": 2}, "envs_per_group: expected 1 with video, got 2"),
        ({**_VIDEO, "num_groups": 2}, "num_groups: expected 1 with video, got 2"),
        ({**_VIDEO, "env_workers": 1}, "env_workers: expected 0 with video, got 1"),
        ({"tls_cert": Path("x.pem"), "tls_key": Path("x.key")}, "tls_ca: expected"),
        ({"token_file": Path("token"), "learner": "a:1"}, "token_file: expected"),
        ({"metrics_port": 65536}, "metrics_port: expected"),
    ],
)
def test_flags_that_cannot_work_are_refused_by_name(flags: dict[str, Any], reason: str) -> None:
    """The refusal comes before the actor connects or makes an environment."""
    with pytest.raises(ConfigError, match=f"^{reason}"):
        ActorArgs(**{"learner": "127.0.0.1:1", **flags})


def test_defaults_leave_the_numbers_to_the_learner() -> None:
    """An actor needs nothing but the learner's address."""
    args = ActorArgs(learner="127.0.0.1:1,unix:/tmp/learner.sock")
    assert args.envs_per_group is None and args.num_groups is None
    assert args.addresses == ("127.0.0.1:1", "unix:/tmp/learner.sock")
