"""Certificates for every test that needs some, made once by the tool that users have."""

from pathlib import Path

import pytest

from tools.make_certs import make_certs


@pytest.fixture(scope="session")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory as `make certs` fills it, for this machine."""
    return _made(tmp_path_factory, "certs")


@pytest.fixture(scope="session")
def other_certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of another CA: strangers'."""
    return _made(tmp_path_factory, "other")


@pytest.fixture(scope="session")
def expired_certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, of which the certificates ran out yesterday."""
    return _made(tmp_path_factory, "expired", days=-1)


def _made(factory: pytest.TempPathFactory, name: str, days: int = 1) -> Path:
    directory = factory.mktemp(name)
    make_certs(directory, [], days=days)
    return directory
