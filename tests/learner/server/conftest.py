"""The fixture that most tests of the server start from."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.learner.server.support import Serving


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """A server of `SPEC`."""
    serving = Serving(tmp_path)
    yield serving
    serving.close()
