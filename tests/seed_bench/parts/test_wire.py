"""The cost of the wire: what becomes of an actor that cannot be measured."""

import subprocess
import sys
import threading

import pytest

from seed.errors import SeedError
from seed_bench.parts.wire import wait_for_steps


def test_an_actor_that_ends_is_not_waited_for() -> None:
    """What it said says why."""
    command = [sys.executable, "-c", "raise SystemExit('refused')"]
    actor = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    with pytest.raises(SeedError, match="the actor ended with code 1:\nrefused"):
        wait_for_steps(threading.Event(), actor)
