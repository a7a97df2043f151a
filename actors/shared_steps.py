"""Steps pass to a learner on this machine through memory that both map, without gRPC.

Used by `PolicyStream`, in the actor's main thread. learner/serving/local_steps.py is the other
end, and draws what passes.
"""

import contextlib
import logging
import os
import select
import time
from collections import deque
from collections.abc import Iterable

import numpy as np

from seed.step_memory import MEMORY_METADATA, map_groups, open_file
from seed.step_notices import ANSWERS, STEPS, StepNotice
from seed.wire import EnvOutputs, Hello


class SharedSteps:
    """The memory of one stream, from its welcome to `close`."""

    def __init__(self, places: str, hello: Hello) -> None:
        """Opens the file and pipes at `places`, as the learner sent them.

        Raises:
          OSError: one of them cannot be opened from this process.
        """
        file, steps, answers = places.split()
        with contextlib.ExitStack() as opened:
            memory = open_file(file)
            opened.callback(os.close, memory)
            self._groups = map_groups(memory, hello.spec, hello.group_sizes)
            self._steps = os.open(steps, os.O_WRONLY)
            opened.callback(os.close, self._steps)
            self._answers = os.open(answers, os.O_RDONLY)
            opened.callback(os.close, self._answers)
            self._opened = opened.pop_all()
        self._answered: deque[int] = deque()

    def send(self, outputs: EnvOutputs) -> None:
        """Writes one step of a group. `receive` tells if the learner has ended."""
        num_episodes = self._groups[outputs.group].write(outputs)
        notice = StepNotice(outputs.group, num_episodes, time.monotonic(), False)
        with contextlib.suppress(BrokenPipeError):
            STEPS.write(self._steps, [notice])

    def receive(self, timeout_s: float) -> tuple[int, np.ndarray] | None:
        """Waits for the next answer: (group, actions [E]); None if there is none in time.

        Raises:
          EOFError: the learner has ended; the stream holds the reason.
        """
        if not self._answered:
            if not select.select([self._answers], [], [], timeout_s)[0]:
                return None
            self._answered += [group for (group,) in ANSWERS.read(self._answers)]
            if not self._answered:
                raise EOFError
        group = self._answered.popleft()
        return group, self._groups[group].actions()

    def close(self) -> None:
        """Closes the pipes. The memory is freed with the last array that views it."""
        self._opened.close()


def open_shared(metadata: Iterable[tuple[str, str | bytes]], hello: Hello) -> SharedSteps | None:
    """Returns the memory that a learner offers in a stream's first metadata, or None."""
    for key, places in metadata:
        if key == MEMORY_METADATA and isinstance(places, str):
            try:
                return SharedSteps(places, hello)
            except OSError as error:
                # For example, the learner is in another container, or runs as another user.
                logging.warning("no memory is shared with the learner: %s", error)
    return None
