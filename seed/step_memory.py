"""Memory in which a group's step and its answer pass between two processes of a machine.

From an actor to the learner, or from the process that serves an actor. One anonymous
file for each actor, gone with the last process that maps it, however that ends.

    file    group 0: observations  rewards  flags  episodes  actions   group 1: ...
             written by who steps ----------------------'    '-- by who answers
"""

import itertools
import mmap
import os
from collections.abc import Sequence

import numpy as np

from seed.specs import EnvSpec
from seed.wire import EnvOutputs, Episode

# As numpy aligns its own arrays where that is faster.
_ALIGNMENT = 64

# In the metadata of an Act stream: an actor's wish for such memory, and the learner's answer,
# paths of the file, of the pipe of steps and of that of answers, with spaces between.
MEMORY_METADATA = "seed-memory"

# As it shows in /proc.
_NAME = "seed-actor"

_EPISODE = np.dtype([("env", np.int64), ("episode_return", np.float64), ("length", np.int64)])


class GroupMemory:
    """One group's latest step and its answer: arrays in memory that two processes map.

    One process calls `write`, then tells the other, which calls `read` and, once, `answer`,
    and tells the first, which calls `actions`, and may `write` again.
    """

    def __init__(
        self, buffer: mmap.mmap, offset: int, *, group: int, num_envs: int, spec: EnvSpec
    ) -> None:
        self._group = group
        arrays: list[np.ndarray] = []
        for dtype, shape in _layout(spec, num_envs):
            count = int(np.prod(shape, dtype=np.int64))
            arrays.append(np.frombuffer(buffer, dtype, count, offset).reshape(shape))
            offset += _padded(arrays[-1].nbytes)
        *self._observations, self._rewards, self._flags, self._episodes, self._actions = arrays

    def write(self, outputs: EnvOutputs) -> int:
        """Copies a step in; returns how many episodes it carries."""
        for held, array in zip(self._observations, outputs.observations, strict=True):
            held[:] = array
        self._rewards[:] = outputs.rewards
        self._flags[0] = outputs.is_first
        self._flags[1] = outputs.terminated
        self._flags[2] = outputs.truncated
        num_episodes = len(outputs.episodes)
        if num_episodes:
            self._episodes[:num_episodes] = [tuple(episode) for episode in outputs.episodes]
        return num_episodes

    def read(self, num_episodes: int) -> EnvOutputs:
        """Returns the step, of which the observations are views, valid until the answer."""
        flags = self._flags != 0
        episodes = self._episodes[:num_episodes].tolist() if num_episodes else ()
        return EnvOutputs(
            group=self._group,
            observations=tuple(self._observations),
            rewards=self._rewards.copy(),
            is_first=flags[0],
            terminated=flags[1],
            truncated=flags[2],
            episodes=[Episode(*fields) for fields in episodes],
        )

    def answer(self, actions: np.ndarray) -> None:
        """Copies actions in, int64 [E]."""
        self._actions[:] = actions

    def actions(self) -> np.ndarray:
        """Returns a copy of the answer, int64 [E]."""
        return self._actions.copy()


def make_file(spec: EnvSpec, group_sizes: Sequence[int]) -> int:
    """Returns the descriptor of a new file with room for an actor's groups."""
    descriptor = os.memfd_create(_NAME)
    os.ftruncate(descriptor, sum(_num_bytes(spec, size) for size in group_sizes))
    return descriptor


def path_of(descriptor: int) -> str:
    """Returns where another process of this user may open a file or pipe that is open here."""
    return f"/proc/{os.getpid()}/fd/{descriptor}"


def open_file(path: str) -> int:
    """Opens what another process made by `make_file`; raises OSError if that is none."""
    if not os.readlink(path).startswith(f"/memfd:{_NAME}"):
        raise OSError(f"{path} is no file of steps")
    return os.open(path, os.O_RDWR)


def map_groups(descriptor: int, spec: EnvSpec, group_sizes: Sequence[int]) -> list[GroupMemory]:
    """Returns each group's memory in the file, which may be closed then.

    It stays mapped for as long as any view of it is held.
    """
    num_bytes = [_num_bytes(spec, size) for size in group_sizes]
    buffer = mmap.mmap(descriptor, sum(num_bytes))
    offsets = itertools.accumulate(num_bytes, initial=0)
    return [
        GroupMemory(buffer, offset, group=group, num_envs=size, spec=spec)
        for group, (size, offset) in enumerate(zip(group_sizes, offsets, strict=False))
    ]


def _layout(spec: EnvSpec, num_envs: int) -> list[tuple[np.dtype, tuple[int, ...]]]:
    """Returns dtype and shape of each array of a group, in their order."""
    observations = [(np.dtype(leaf.dtype), (num_envs, *leaf.shape)) for leaf in spec.observations]
    return [
        *observations,
        (np.dtype(np.float32), (num_envs,)),
        (np.dtype(np.uint8), (3, num_envs)),
        (_EPISODE, (num_envs,)),
        (np.dtype(np.int64), (num_envs,)),
    ]


def _num_bytes(spec: EnvSpec, num_envs: int) -> int:
    return sum(
        _padded(dtype.itemsize * int(np.prod(shape, dtype=np.int64)))
        for dtype, shape in _layout(spec, num_envs)
    )


def _padded(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
