"""What travels inside the learner: rows, steps, unrolls, and their transitions.

Plain named tuples of tensors. Inference makes them, the stores hold them, agents learn from
them. `transitions` is the only place that shifts time.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

# What a network keeps from row to row (LSTM state, frame context): tensors
# [B, ...] by name.
State = dict[str, Tensor]

# Prefixes of the paths of `flatten`, for its readers.
STEPS = "steps/"
_ROWS = f"{STEPS}rows/"
OBSERVATIONS = f"{_ROWS}observations/"
INITIAL_STATE = "initial_state/"


class Rows(NamedTuple):
    """The environments' outputs at each row, and the action before it."""

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


class Steps(NamedTuple):
    """Rows and the outputs of the policy at them. Every tensor is time-major: [T, B, ...]."""

    rows: Rows
    """[T, B, ...]."""
    actions: Tensor
    """int64 [T, B]: chosen at the row."""
    policy_outputs: dict[str, Tensor]
    """[T, B, ...]: outputs of the acting network at the row, e.g. "logits"."""
    policy_versions: Tensor
    """int64 [T, B]: version of the weights that acted."""

    @property
    def num_rows(self) -> int:
        """T."""
        return self.rows.is_first.shape[0]

    @property
    def batch_size(self) -> int:
        """B."""
        return self.rows.is_first.shape[1]


class Unrolls(NamedTuple):
    """B unrolls of T transitions, T + 1 rows; the last row is also the next's first."""

    steps: Steps
    """[T + 1, B, ...]."""
    initial_state: State
    """[B, ...]: the network's state before row 0."""

    @property
    def num_unrolls(self) -> int:
        """B."""
        return self.steps.batch_size


class Batch(NamedTuple):
    """The data of one learner step, or a part of it."""

    unrolls: Unrolls
    """[T + 1, B]."""
    importance_weights: Tensor | None = None
    """float32 [B]: importance weights, if sampling was uneven."""


class Completed(NamedTuple):
    """Full unrolls, and where they belong in the environments' streams."""

    unrolls: Unrolls
    """[T + 1, n]."""
    slots: np.ndarray
    """int64 [n]."""
    follows: np.ndarray
    """bool [n]: the unroll begins where the slot's last one ended; False if it is the slot's
    first since an actor took the slot."""


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

    The step into the first row of an episode was a reset: it is no transition. So a
    terminated row that is followed by more of its game (a lost life) ends only the
    return.
    """
    terminated = rows.terminated[1:]
    return Transitions(
        rewards=rows.rewards[1:],
        discounts=discount_factor * (~terminated).to(torch.float32),
        mask=(~rows.is_first[1:]).to(torch.float32),
    )


def map_tensors(function: Callable[..., Tensor], *records: Any) -> Any:
    """Applies `function` to corresponding tensors of records of one structure; None stays None."""
    first = records[0]
    if first is None:
        return None
    if isinstance(first, Tensor):
        return function(*records)
    if isinstance(first, dict):
        return {name: map_tensors(function, *(r[name] for r in records)) for name in first}
    mapped = (map_tensors(function, *fields) for fields in zip(*records, strict=True))
    return type(first)(*mapped) if hasattr(first, "_fields") else tuple(mapped)


def flatten(record: Any) -> dict[str, Tensor]:
    """Returns every tensor of a record by its path, e.g. "steps/rows/observations/0".

    Records of one structure give the same paths in the same order.
    """
    return dict(_leaves("", record))


def tensors_of(record: Any) -> list[Tensor]:
    """Returns all tensors of a record, in the order of `flatten`. Fast: called for every batch."""
    if isinstance(record, Tensor):
        return [record]
    if record is None:
        return []
    fields = [record[name] for name in sorted(record)] if isinstance(record, dict) else record
    return [tensor for field in fields for tensor in tensors_of(field)]


def unflatten(leaves: dict[str, Tensor]) -> Unrolls:
    """Returns the unrolls from which `flatten` made `leaves`.

    Observations, policy outputs and initial state may be missing from `leaves`.
    """

    def below(prefix: str) -> dict[str, Tensor]:
        return {k.removeprefix(prefix): x for k, x in leaves.items() if k.startswith(prefix)}

    observations = below(OBSERVATIONS)
    rows = Rows(
        observations=tuple(observations[str(index)] for index in range(len(observations))),
        **{name: leaves[f"{_ROWS}{name}"] for name in Rows._fields if name != "observations"},
    )
    steps = Steps(
        rows=rows,
        actions=leaves[f"{STEPS}actions"],
        policy_outputs=below(f"{STEPS}policy_outputs/"),
        policy_versions=leaves[f"{STEPS}policy_versions"],
    )
    return Unrolls(steps, below(INITIAL_STATE))


def concatenate_unrolls(parts: list[Unrolls]) -> Unrolls:
    """Returns the unrolls of all `parts`, in order, as one batch."""
    if len(parts) == 1:
        return parts[0]
    return Unrolls(
        map_tensors(lambda *xs: torch.cat(xs, dim=1), *(part.steps for part in parts)),
        map_tensors(lambda *xs: torch.cat(xs), *(part.initial_state for part in parts)),
    )


def index_unrolls(unrolls: Unrolls, which: Tensor) -> Unrolls:
    """Returns copies of the unrolls numbered `which`, int64 [n]."""
    return Unrolls(
        map_tensors(lambda x: x.index_select(1, which), unrolls.steps),
        map_tensors(lambda x: x.index_select(0, which), unrolls.initial_state),
    )


def select_unrolls(unrolls: Unrolls, start: int, stop: int) -> Unrolls:
    """Returns unrolls `start` to `stop` (exclusive) as views."""
    return Unrolls(
        map_tensors(lambda x: x[:, start:stop], unrolls.steps),
        map_tensors(lambda x: x[start:stop], unrolls.initial_state),
    )


def _leaves(path: str, record: Any) -> Iterator[tuple[str, Tensor]]:
    """Yields (path, tensor); dicts in the order of their sorted keys."""
    if isinstance(record, Tensor):
        yield path, record
        return
    if record is None:
        return
    if isinstance(record, dict):
        children = sorted(record.items())
    else:
        names = getattr(record, "_fields", map(str, range(len(record))))
        children = zip(names, record, strict=True)
    for name, child in children:
        yield from _leaves(f"{path}/{name}" if path else name, child)
