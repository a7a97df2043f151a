"""actors/loop.py, with a function as its learner."""

import collections
import threading

import numpy as np
import pytest

from actors.envs import make_group
from actors.group import EnvGroup
from actors.loop import run_loop
from seed.env_config import EnvConfig
from seed.errors import LearnerUnavailableError
from seed.wire import EnvOutputs


class FunctionPolicy:
    """Answers with action 0; sets `stop`, or ends the connection, after `num_answers`."""

    def __init__(
        self, num_answers: int, stop: threading.Event | None = None, newest_first: bool = False
    ) -> None:
        self.sent: list[EnvOutputs] = []
        self._waiting: collections.deque[EnvOutputs] = collections.deque()
        self._answers_left = num_answers
        self._stop = stop
        self._newest_first = newest_first

    def send(self, outputs: EnvOutputs) -> None:
        """Keeps the outputs until `receive` answers them."""
        assert outputs.group not in [waiting.group for waiting in self._waiting]
        self.sent.append(outputs)
        self._waiting.append(outputs)

    def receive(self) -> tuple[int, np.ndarray]:
        """Answers the oldest or the newest outputs that wait."""
        if self._answers_left == 0:
            raise LearnerUnavailableError("hung up")
        self._answers_left -= 1
        if self._answers_left == 0 and self._stop:
            self._stop.set()
        outputs = self._waiting.pop() if self._newest_first else self._waiting.popleft()
        return outputs.group, np.zeros(len(outputs.rewards), np.int64)


def _groups(*sizes: int) -> list[EnvGroup]:
    config = EnvConfig(env_id="seed/Catch-v0")
    return [
        make_group(config, index=index, num_envs=size, base_seed=1)
        for index, size in enumerate(sizes)
    ]


def test_all_groups_start_before_any_is_answered() -> None:
    """Every group sends its reset before the loop receives; then the groups take turns."""
    stop = threading.Event()
    policy = FunctionPolicy(num_answers=4, stop=stop)
    run_loop(_groups(2, 3), policy, stop)
    assert [(row.group, row.is_first.all()) for row in policy.sent] == [
        (0, True),
        (1, True),
        (0, False),
        (1, False),
        (0, False),
        (1, False),
    ]
    assert [len(row.rewards) for row in policy.sent[:2]] == [2, 3]


def test_group_that_is_answered_is_the_one_stepped() -> None:
    """Answers may come in another order than the steps were sent in."""
    stop = threading.Event()
    policy = FunctionPolicy(num_answers=3, stop=stop, newest_first=True)
    run_loop(_groups(1, 1), policy, stop)
    assert [row.group for row in policy.sent] == [0, 1, 1, 1, 1]


def test_lost_connection_ends_the_loop_and_groups_start_afresh_in_the_next() -> None:
    """The same environments begin new episodes over a new connection."""
    groups = _groups(1)
    with pytest.raises(LearnerUnavailableError):
        run_loop(groups, FunctionPolicy(num_answers=4), threading.Event())
    stop = threading.Event()
    policy = FunctionPolicy(num_answers=9, stop=stop)
    run_loop(groups, policy, stop)
    assert policy.sent[0].is_first.all()
    assert policy.sent[-1].episodes[0].length == 9
