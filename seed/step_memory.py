"""Memory through which a group's step and its answer pass between two processes of a machine.

The step comes from an actor, or from the ingress process that serves it. There is one anonymous
file for each actor. It disappears with the last process that maps it, even after a kill.

    file    group 0: observations  rewards  flags  episodes  failures  actions   group 1: ...
             written by the stepping process ---------------------'    '-- by the answering process
"""

import itertools
import mmap
import os
from collections.abc import Sequence

import numpy as np

from seed.specs import EnvSpec
from seed.wire import EnvOutputs, Episode

# The alignment that NumPy chooses for its own arrays where that is faster.
_ALIGNMENT = 64

# Key in the metadata of an Act stream. The actor sends it to ask for such memory. The learner
# answers with three paths, separated by spaces: the file, the pipe of steps, the pipe of answers.
MEMORY_METADATA = "seed-memory"

# The name that /proc shows.
_NAME = "seed-actor"

_EPISODE = np.dtype([("env", np.int64), ("episode_return", np.float64), ("length", np.int64)])


class GroupMemory:
    """One group's latest step and its answer: arrays in memory that two processes map.

    One process calls `write`, then notifies the other. The other process calls `read`, then
    `answer` once, and notifies the first. The first calls `actions`, and may then `write` again.
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
        *self._observations, self._rewards, self._flags, self._episodes = arrays[:-2]
        self._failures, self._actions = arrays[-2:]

    def write(self, outputs: EnvOutputs) -> int:
        """Copies a step into the memory; returns the number of episodes that it carries."""
        for held, array in zip(self._observations, outputs.observations, strict=True):
            held[:] = array
        self._rewards[:] = outputs.rewards
        self._flags[0] = outputs.is_first
        self._flags[1] = outputs.terminated
        self._flags[2] = outputs.truncated
        self._failures[0] = outputs.failures
        num_episodes = len(outputs.episodes)
        if num_episodes:
            self._episodes[:num_episodes] = [tuple(episode) for episode in outputs.episodes]
        return num_episodes

    def read(self, num_episodes: int) -> EnvOutputs:
        """Returns the step. Its observations are views, valid until the answer."""
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
            failures=int(self._failures[0]),
        )

    def answer(self, actions: np.ndarray) -> None:
        """Copies actions, int64 [E], into the memory."""
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
    """Returns the path by which another process of this user opens a file or pipe."""
    return f"/proc/{os.getpid()}/fd/{descriptor}"


def open_file(path: str) -> int:
    """Opens a file that another process made by `make_file`; raises OSError if it is not one."""
    if not os.readlink(path).startswith(f"/memfd:{_NAME}"):
        raise OSError(f"{path} is no file of steps")
    return os.open(path, os.O_RDWR)


def map_groups(descriptor: int, spec: EnvSpec, group_sizes: Sequence[int]) -> list[GroupMemory]:
    """Returns each group's memory in the file, which the caller may close afterwards.

    The file stays mapped as long as a view of it exists.
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
        (np.dtype(np.uint32), (1,)),
        (np.dtype(np.int64), (num_envs,)),
    ]


def _num_bytes(spec: EnvSpec, num_envs: int) -> int:
    return sum(
        _padded(dtype.itemsize * int(np.prod(shape, dtype=np.int64)))
        for dtype, shape in _layout(spec, num_envs)
    )


def _padded(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
