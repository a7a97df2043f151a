"""The double-buffered loop: step the group whose actions have come, send, repeat.

Runs in the actor's main thread. Does not use gRPC: in a test a function behind a queue can
be the connection.
"""

import threading
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from actors.group import EnvGroup
from seed.wire import EnvOutputs


class PolicyConnection(Protocol):
    """Where actions come from."""

    def send(self, outputs: EnvOutputs) -> None:
        """Sends one step of a group, without waiting for its answer."""
        ...

    def receive(self) -> tuple[int, np.ndarray]:
        """Waits for the next answer of any group: (group, actions int64 [E])."""
        ...


def run_loop(
    groups: Sequence[EnvGroup], connection: PolicyConnection, stop: threading.Event
) -> None:
    """Starts new episodes in all groups and steps them until `stop` is set.

        group 0   step  send  ..............  step  send  ......
        group 1         step  send  ..............  step  send
        learner         ^ acts for 0  ^ acts for 1   ^ ...

    While one group waits for its actions another steps. The loop reads `stop` between
    two steps, so it ends after one more answer at most.
    """
    for group in groups:
        connection.send(group.reset())
    while not stop.is_set():
        index, actions = connection.receive()
        connection.send(groups[index].step(actions))
