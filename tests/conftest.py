"""How many tests run at once, and certificates made once by the tool that users have."""

import os
from pathlib import Path

import pytest

from seed.cores import usable_cores
from tools.make_certs import make_certs

# Before anything imports torch. Tests use small tensors: a second thread saves nothing, and while
# it waits for work it spins on a core that another test could use. Processes of `seed` set their
# number of threads themselves.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Each worker imports torch, in two seconds and several hundred MiB, and starts processes of its
# own beside those of the others. The longest test bounds what more workers could gain.
_MAX_WORKERS = 4


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Returns how many workers `--numprocesses auto` starts."""
    return min(usable_cores(), _MAX_WORKERS)


@pytest.fixture(scope="session")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that `make certs` filled for this machine."""
    return _made(tmp_path_factory, "certs")


@pytest.fixture(scope="session")
def other_certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same files from another CA, which the learner does not know."""
    return _made(tmp_path_factory, "other")


@pytest.fixture(scope="session")
def expired_certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same files, with certificates that expired yesterday."""
    return _made(tmp_path_factory, "expired", days=-1)


def _made(factory: pytest.TempPathFactory, name: str, days: int = 1) -> Path:
    directory = factory.mktemp(name)
    make_certs(directory, [], days=days)
    return directory
