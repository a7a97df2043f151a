"""Sampling in proportion to priorities: a binary tree of their sums.

Plain NumPy, not thread-safe: `learner/experience/replay/replay.py` holds its lock around every
call. Each call works on all its elements at once, level by level: O(log N) array operations.
"""

import numpy as np
import torch

from seed.errors import expected

# Sums of 2^26 such priorities are still finite.
LARGEST_PRIORITY = 1e300


def check_priorities(priorities: np.ndarray) -> None:
    """Raises ValueError that names the first invalid priority of float64 [n]."""
    valid = (priorities >= 0) & (priorities <= LARGEST_PRIORITY)  # NaN is neither.
    if not valid.all():
        wanted = f"a number from 0 to {LARGEST_PRIORITY}"
        raise ValueError(expected("priority", wanted, priorities[~valid][0]))


class SumTree:
    """Priorities of `capacity` leaves, 0 at first.

    Node 1 is the root, 2 i and 2 i + 1 are the children of node i, and the leaves are
    the last nodes:

        1:  a+b+c+d
        2:  a+b             3:  c+d
        4:  a       5:  b   6:  c       7:  d
    """

    def __init__(self, capacity: int) -> None:
        assert capacity >= 1, "an empty tree has no root"
        self._capacity = capacity
        self._num_levels = (capacity - 1).bit_length()  # below the root
        self._num_leaves = 1 << self._num_levels
        self._nodes = np.zeros(2 * self._num_leaves, np.float64)

    @property
    def total(self) -> float:
        """Sum of all priorities."""
        return float(self._nodes[1])

    def get(self, indices: np.ndarray) -> np.ndarray:
        """Returns the priorities, float64 [n], of the leaves `indices`, int64 [n]."""
        return self._nodes[self._leaves(indices)]

    def set(self, indices: np.ndarray, priorities: np.ndarray) -> None:
        """Sets priorities, float64 [n], of leaves, int64 [n]; of equal leaves the last wins.

        A parent is recomputed as the sum of its children, not changed by a difference:
        nothing drifts, and a subtree of zeros sums to exactly 0.

        Raises:
          ValueError: a priority is negative, infinite or not a number; none is set.
        """
        check_priorities(priorities)
        nodes = self._leaves(indices)
        self._nodes[nodes] = priorities
        for _ in range(self._num_levels):
            nodes >>= 1
            self._nodes[nodes] = self._nodes[2 * nodes] + self._nodes[2 * nodes + 1]

    def find(self, masses: np.ndarray) -> np.ndarray:
        """Returns the leaves, int64 [n], in which the running sum passes `masses`.

        A subtree whose sum is 0 is never entered. A sum of numbers that are not negative is
        0 only if all of them are 0, so every step down leads to a positive node. A leaf of
        priority 0 is therefore never found, for any masses and any rounding of sums.

        Args:
          masses: float64 [n], in [0, total) but for rounding.
        """
        assert self.total > 0, "no leaf could be found"
        nodes, masses = np.ones(len(masses), np.int64), masses.copy()
        for _ in range(self._num_levels):
            nodes *= 2
            left, right = self._nodes[nodes], self._nodes[nodes + 1]
            goes_right = (left == 0) | ((masses >= left) & (right > 0))
            masses -= np.where(goes_right, left, 0)
            nodes += goes_right
        return nodes - self._num_leaves

    def sample(self, count: int, generator: torch.Generator) -> np.ndarray:
        """Returns leaves, int64 [count], one drawn in each of `count` equal parts of the total.

        Stratified, as in Schaul et al. 2016, appendix B.2.1: in every call a leaf turns up
        `count` times its share of the total, give or take less than 2.
        """
        offsets = torch.rand(count, dtype=torch.float64, generator=generator).numpy()
        return self.find((np.arange(count) + offsets) * (self.total / count))

    def _leaves(self, indices: np.ndarray) -> np.ndarray:
        in_range = len(indices) == 0 or (indices.min() >= 0 and indices.max() < self._capacity)
        assert in_range, "an index beyond the leaves would damage their sums"
        return indices + self._num_leaves
