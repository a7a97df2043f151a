"""How a batch of any size goes through an agent's `act`: as it is, or padded to few sizes.

A recorded `act` (`recorders.py`) works on a fixed number of rows in fixed memory. So a
batch is copied there and the rows behind it are whatever was there before; what they give
is left alone. Used by the inference thread.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from learner.agents.base import ActOutput, Agent
from learner.device.recorders import Recorder
from learner.records import Rows, State, Unrolls, map_tensors, tensors_of

_SMALLEST_SIZE = 8


class Act(Protocol):
    """Acts on one batch after the other."""

    def prepare(self, networks: Sequence[nn.Module]) -> None:
        """Makes ready for batches acted on by these networks and no others."""
        ...

    def __call__(
        self,
        network: nn.Module,
        rows: Rows,
        state: State,
        *,
        slots: Tensor,
        greedy: Tensor | None,
    ) -> ActOutput:
        """Returns what `Agent.act` gives: the actions to keep, the rest until the next call."""
        ...


class PlainAct:
    """Hands the batch to the agent."""

    def __init__(self, agent: Agent, generator: torch.Generator) -> None:
        self._agent = agent
        self._generator = generator

    def prepare(self, networks: Sequence[nn.Module]) -> None:
        """Nothing need be done."""

    def __call__(
        self,
        network: nn.Module,
        rows: Rows,
        state: State,
        *,
        slots: Tensor,
        greedy: Tensor | None,
    ) -> ActOutput:
        return self._agent.act(
            network, rows, state, slots=slots, generator=self._generator, greedy=greedy
        )


class _Inputs(NamedTuple):
    """What a recorded `act` reads, of N environments."""

    rows: Rows
    """[1, N, ...]."""
    state: State
    """[N, ...]."""
    slots: Tensor
    """int64 [N]."""
    greedy: Tensor
    """bool [N]."""

    def first(self, count: int) -> "_Inputs":
        """Returns views of the first `count` environments."""
        rows = map_tensors(lambda x: x[:, :count], self.rows)
        others = map_tensors(lambda x: x[:count], (self.state, self.slots, self.greedy))
        return _Inputs(rows, *others)


class PaddedAct:
    """Repeats what was recorded for the next larger size, once for each network.

    Weights are read where they are, so each of the two copies that take turns has
    recordings of its own, rather than a third copy that would have to be written between
    batches. Slots are read and written outside: there may be more of them from one batch to
    the next without anything being recorded again, and no padding row can touch one.
    """

    def __init__(
        self,
        agent: Agent,
        generator: torch.Generator,
        recorder: Recorder,
        *,
        example: Unrolls,
        max_size: int,
    ) -> None:
        """Takes memory for a batch.

        Args:
          agent: whose `act` is called.
          generator: what it draws from, on the device where it is to act.
          recorder: for that device.
          example: a row [1, 1, ...] as acting stores it, on any device.
          max_size: environments in the largest batch to pad; larger ones go as they are.
        """
        self._generator = generator
        self._recorder = recorder
        self._plain = PlainAct(agent, generator)
        self._sizes = padded_sizes(max_size)
        self._inputs = _make_inputs(example, self._sizes[-1], generator.device)
        self._repeats: dict[tuple[nn.Module, int], Callable[[], ActOutput]] = {}

    @torch.inference_mode()
    def prepare(self, networks: Sequence[nn.Module]) -> None:
        # Resuming a run would otherwise change what it draws.
        state = self._generator.get_state()
        # The largest first: the others fit into the memory that it works in.
        for size in reversed(self._sizes):
            for network in networks:
                self._repeats[network, size] = self._record(network, self._inputs.first(size))
        self._generator.set_state(state)

    def __call__(
        self,
        network: nn.Module,
        rows: Rows,
        state: State,
        *,
        slots: Tensor,
        greedy: Tensor | None,
    ) -> ActOutput:
        count = len(slots)
        size = next((size for size in self._sizes if size >= count), None)
        if size is None:
            return self._plain(network, rows, state, slots=slots, greedy=greedy)
        held = self._inputs.first(count)
        given = _Inputs(rows, state, slots, held.greedy.zero_() if greedy is None else greedy)
        for to, x in zip(tensors_of(held), tensors_of(given), strict=True):
            to.copy_(x, non_blocking=True)
        output = map_tensors(lambda x: x[:count], self._repeats[network, size]())
        # They are still on their way to actors when the next batch is acted on.
        return output._replace(actions=output.actions.clone())

    def _record(self, network: nn.Module, inputs: _Inputs) -> Callable[[], ActOutput]:
        rows, state, slots, greedy = inputs
        return self._recorder.record(
            lambda: self._plain(network, rows, state, slots=slots, greedy=greedy)
        )


def padded_sizes(max_size: int) -> tuple[int, ...]:
    """Returns the sizes that batches are padded to: powers of two, and the largest size."""
    sizes, size = [], _SMALLEST_SIZE
    while size < max_size:
        sizes.append(size)
        size *= 2
    return (*sizes, max_size)


def _make_inputs(example: Unrolls, size: int, device: torch.device) -> _Inputs:
    def zeros(*shape: int, like: Tensor) -> Tensor:
        return torch.zeros(shape, dtype=like.dtype, device=device)

    rows = map_tensors(lambda x: zeros(1, size, *x.shape[2:], like=x), example.rows)
    state = map_tensors(lambda x: zeros(size, *x.shape[1:], like=x), example.initial_state)
    slots = zeros(size, like=example.actions)
    return _Inputs(rows, state, slots, zeros(size, like=rows.is_first))
