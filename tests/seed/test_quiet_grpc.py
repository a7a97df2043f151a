"""gRPC's own log keeps to errors, unless the user asks for more."""

import os
import subprocess
import sys

import pytest

SCRIPT = "import os, seed.cli; print(os.environ['GRPC_VERBOSITY'])"


@pytest.mark.parametrize(("wish", "verbosity"), [(None, "ERROR"), ("INFO", "INFO")])
def test_command_line_sets_the_verbosity_where_the_user_has_not(
    wish: str | None, verbosity: str
) -> None:
    """In a process of its own: the setting counts before gRPC is imported."""
    environment = {k: v for k, v in os.environ.items() if k != "GRPC_VERBOSITY"}
    environment |= {"GRPC_VERBOSITY": wish} if wish else {}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == verbosity
