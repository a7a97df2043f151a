"""The fixtures that most tests of the server start from."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.learner.serving.support import Serving


@pytest.fixture(params=[0, 2], ids=["thread", "processes"])
def ingress_processes(request: pytest.FixtureRequest) -> int:
    """The server is a thread of the learner, or processes of their own: tests run with both."""
    return request.param


@pytest.fixture
def serving(tmp_path: Path, ingress_processes: int) -> Iterator[Serving]:
    """A server of `SPEC`."""
    serving = Serving(tmp_path, ingress_processes=ingress_processes)
    yield serving
    serving.close()
