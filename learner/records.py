"""What travels inside the learner: rows, unrolls, and their transitions.

Plain named tuples of tensors, shared by inference (which makes them), the
stores, and the agents (which learn from them). `transitions` is the only place
that shifts time.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

# What a network carries from row to row (LSTM state, frame context): tensors
# [B, ...] by name.
State = dict[str, Tensor]


class Rows(NamedTuple):
    """What the environments gave at each row, and the action before it."""

    observations: tuple[Tensor, ...]
    """One tensor [T, B, *shape] per leaf of the spec."""
    rewards: Tensor
    """float32 [T, B]: raw reward received on arriving at the row."""
    previous_actions: Tensor
    """int64 [T, B]: the action that led to the row; meaningless where `is_first`."""
    is_first: Tensor
    """bool [T, B]."""
    terminated: Tensor
    """bool [T, B]."""
    truncated: Tensor
    """bool [T, B]."""


class Unrolls(NamedTuple):
    """B unrolls of T transitions, T + 1 rows; the last row is also the next's first."""

    rows: Rows
    """[T + 1, B, ...]."""
    actions: Tensor
    """int64 [T + 1, B]: chosen at the row."""
    policy_outputs: dict[str, Tensor]
    """[T + 1, B, ...]: what the acting network gave at the row, e.g. "logits"."""
    policy_versions: Tensor
    """int64 [T + 1, B]: version of the weights that acted."""
    initial_state: State
    """[B, ...]: the network's state before row 0."""

    @property
    def num_unrolls(self) -> int:
        return self.actions.shape[1]


class Completed(NamedTuple):
    """Unrolls that are full, and where in the environments' streams they belong."""

    unrolls: Unrolls
    """[T + 1, n]."""
    slots: np.ndarray
    """int64 [n]."""
    follows: np.ndarray
    """bool [n]: the unroll begins where the slot's last one ended; False where an actor
    took the slot since."""


class Transitions(NamedTuple):
    """Steps from row t to row t + 1, t = 0 .. T - 1."""

    rewards: Tensor
    """float32 [T, B]: raw reward received on arriving at row t + 1."""
    discounts: Tensor
    """float32 [T, B]: discount factor, or 0 where row t + 1 is terminated."""
    mask: Tensor
    """float32 [T, B]: 0 where no such step was taken, else 1."""


def transitions(rows: Rows, discount_factor: float) -> Transitions:
    """Returns the transitions between consecutive rows [T + 1, B].

        row         t        t+1        t+2        t+3
        observation o5       o6 (last)  o0 (new)   o1
        transition     o5->o6    (none)     o0->o1
        mask           1         0          1

    The step into a row that is the first of an episode was a reset: it does not
    exist. A terminated row that is followed by more of its game (a lost life)
    thus ends the return and nothing else.
    """
    terminated = rows.terminated[1:]
    return Transitions(
        rewards=rows.rewards[1:],
        discounts=discount_factor * (~terminated).to(torch.float32),
        mask=(~rows.is_first[1:]).to(torch.float32),
    )


def map_tensors(function: Callable[..., Tensor], *records: Any) -> Any:
    """Applies `function` to corresponding tensors of equally built records."""
    first = records[0]
    if isinstance(first, Tensor):
        return function(*records)
    if isinstance(first, dict):
        return {name: map_tensors(function, *(r[name] for r in records)) for name in first}
    mapped = (map_tensors(function, *fields) for fields in zip(*records, strict=True))
    return type(first)(*mapped) if hasattr(first, "_fields") else tuple(mapped)


def tensors_of(record: Any) -> list[Tensor]:
    """Returns all tensors of a record, the same order for all that are built alike."""
    if isinstance(record, Tensor):
        return [record]
    fields = [record[name] for name in sorted(record)] if isinstance(record, dict) else record
    return [tensor for field in fields for tensor in tensors_of(field)]


def concatenate_unrolls(parts: list[Unrolls]) -> Unrolls:
    """Returns the unrolls of all `parts`, in order, as one batch."""
    if len(parts) == 1:
        return parts[0]
    states = [part.initial_state for part in parts]
    stateless = [part._replace(initial_state={}) for part in parts]
    merged = map_tensors(lambda *xs: torch.cat(xs, dim=1), *stateless)
    return merged._replace(initial_state=map_tensors(lambda *xs: torch.cat(xs), *states))


def index_unrolls(unrolls: Unrolls, which: Tensor) -> Unrolls:
    """Returns copies of the unrolls numbered `which`, int64 [n]."""
    selected = map_tensors(lambda x: x.index_select(1, which), unrolls._replace(initial_state={}))
    state = map_tensors(lambda x: x.index_select(0, which), unrolls.initial_state)
    return selected._replace(initial_state=state)


def select_unrolls(unrolls: Unrolls, start: int, stop: int) -> Unrolls:
    """Returns unrolls `start` to `stop` (exclusive) as views."""
    stateless = unrolls._replace(initial_state={})
    selected = map_tensors(lambda x: x[:, start:stop], stateless)
    state = map_tensors(lambda x: x[start:stop], unrolls.initial_state)
    return selected._replace(initial_state=state)
