"""A learner's place among others: what torchrun says, and at which address each listens."""

import pytest

from learner.config.args import LearnerArgs, parse_preset
from learner.config.torchrun import Place, local_address, place_from_environment
from seed.errors import ConfigError

MASTER = (("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500"))


def test_place_is_what_torchrun_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torchrun there is one learner."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert place_from_environment() == Place(0, 1, 0)
    for name, value in (("RANK", "5"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "1"), *MASTER):
        monkeypatch.setenv(name, value)
    assert place_from_environment() == Place(5, 8, 1)


@pytest.mark.parametrize(("rank", "size"), [("2", "2"), ("-1", "2"), ("one", "2"), ("0", "")])
def test_impossible_place_is_refused(monkeypatch: pytest.MonkeyPatch, rank: str, size: str) -> None:
    """The error names the environment variable."""
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", size)
    with pytest.raises(ConfigError, match="^(RANK|WORLD_SIZE): expected"):
        place_from_environment()


@pytest.mark.parametrize(("missing", "_"), MASTER)
def test_learners_that_could_not_find_each_other_are_refused(
    monkeypatch: pytest.MonkeyPatch, missing: str, _: str
) -> None:
    """A user who sets the places by hand must also set the address where they meet."""
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), *MASTER):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv(missing)
    with pytest.raises(ConfigError, match=f"^{missing}: expected set beside WORLD_SIZE"):
        place_from_environment()


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("0.0.0.0:50051", "0.0.0.0:50053"),
        ("[::]:7000", "[::]:7002"),
        ("127.0.0.1:0", "127.0.0.1:0"),
        ("unix:/run/seed.sock", "unix:/run/seed.sock.2"),
    ],
)
def test_learners_of_a_machine_listen_side_by_side(address: str, expected: str) -> None:
    """The first listens at the address itself, at any place among all learners."""
    assert local_address(address, Place(6, 8, 2)) == expected
    assert local_address(address, Place(4, 8, 0)) == address


def test_several_learners_want_a_run_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory named after the time would differ between learners."""
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), *MASTER):
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="^run_dir: expected one for all learners"):
        parse_preset(LearnerArgs, "learner", ["cartpole-vtrace"])
