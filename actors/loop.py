"""The double-buffered loop: step whichever group has its actions, send, repeat.

Runs in the actor's main thread. Knows nothing of gRPC: a test may stand in for the
connection with a function behind a queue.
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
        """Hands over one step of a group, without waiting for its answer."""
        ...

    def receive(self) -> tuple[int, np.ndarray]:
        """Waits for any answer: (group, actions [E])."""
        ...


def run_loop(
    groups: Sequence[EnvGroup], connection: PolicyConnection, stop: threading.Event
) -> None:
    """Starts fresh episodes in all groups and steps them until `stop` is set.

        group 0   step  send  ..............  step  send  ......
        group 1         step  send  ..............  step  send
        learner         ^ acts for 0  ^ acts for 1   ^ ...

    While one group waits for its actions another steps. `stop` is looked at
    between two steps, so a caller that sets it waits for one answer at most.
    """
    for group in groups:
        connection.send(group.reset())
    while not stop.is_set():
        index, actions = connection.receive()
        connection.send(groups[index].step(actions))
