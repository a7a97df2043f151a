"""Runs a batch of any size through an agent's `act`: as it is, or padded to one of few sizes.

A recorded `act` (`learner/device/recorders.py`) works on a fixed number of rows in fixed memory.
So a batch is copied into that memory. The rows after it hold an older batch; their results are
ignored. Used by the inference thread.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from learner.agents.base import ActInput, ActOutput, Agent
from learner.device.recorders import Recorder
from learner.records import Unrolls, map_tensors, tensors_of

_SMALLEST_SIZE = 8


class GraphRunner(Protocol):
    """Acts on one batch after the other."""

    def prepare(self, networks: Sequence[nn.Module]) -> None:
        """Prepares for batches that these networks, and no others, act on."""
        ...

    def __call__(self, network: nn.Module, inputs: ActInput) -> ActOutput:
        """Returns the output of `Agent.act`: the actions are a copy, the rest is valid until the
        next call."""
        ...


class PlainRunner:
    """Passes each batch to the agent as it is."""

    def __init__(self, agent: Agent, generator: torch.Generator) -> None:
        self._agent = agent
        self._generator = generator

    def prepare(self, networks: Sequence[nn.Module]) -> None:
        """Does nothing."""

    def __call__(self, network: nn.Module, inputs: ActInput) -> ActOutput:
        return self._agent.act(network, inputs, self._generator)


class PaddedRunner:
    """Replays the recording for the next larger size; each network has its own recordings.

    A recording reads the weights where they are. So each of the two copies of the weights that
    take turns has recordings of its own; a third copy would have to be written between batches.
    Slots are read and written outside a recording. So more slots need no new recordings, and no
    padding row can change a slot.
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
        """Allocates memory for a batch.

        Args:
          agent: whose `act` is called.
          generator: source of the agent's random numbers, on the device of acting.
          recorder: for that device.
          example: a row [1, 1, ...] as acting stores it, on any device.
          max_size: environments in the largest batch to pad; larger batches are not padded.
        """
        self._generator = generator
        self._recorder = recorder
        self._plain = PlainRunner(agent, generator)
        self._sizes = padded_sizes(max_size)
        self._inputs = _make_inputs(example, self._sizes[-1], generator.device)
        self._repeats: dict[tuple[nn.Module, int], Callable[[], ActOutput]] = {}

    @torch.inference_mode()
    def prepare(self, networks: Sequence[nn.Module]) -> None:
        # Recording draws random numbers. Without the restored state, a resumed run would sample
        # other actions.
        state = self._generator.get_state()
        # The largest size goes first: the other sizes fit into the memory that it uses.
        for size in reversed(self._sizes):
            for network in networks:
                self._repeats[network, size] = self._record(
                    network, _first_envs(self._inputs, size)
                )
        self._generator.set_state(state)

    def __call__(self, network: nn.Module, inputs: ActInput) -> ActOutput:
        count = len(inputs.slots)
        size = next((size for size in self._sizes if size >= count), None)
        if size is None:
            return self._plain(network, inputs)
        held = _first_envs(self._inputs, count)
        if inputs.greedy is None:
            assert held.greedy is not None, "padded inputs say of each row whether it is greedy"
            inputs = inputs._replace(greedy=held.greedy.zero_())
        for to, x in zip(tensors_of(held), tensors_of(inputs), strict=True):
            to.copy_(x, non_blocking=True)
        output = map_tensors(lambda x: x[:count], self._repeats[network, size]())
        # The next batch overwrites the output, maybe before these actions have reached actors.
        return output._replace(actions=output.actions.clone())

    def _record(self, network: nn.Module, inputs: ActInput) -> Callable[[], ActOutput]:
        return self._recorder.record(lambda: self._plain(network, inputs))


def padded_sizes(max_size: int) -> tuple[int, ...]:
    """Returns the sizes that batches are padded to: powers of two, and the largest size."""
    sizes, size = [], _SMALLEST_SIZE
    while size < max_size:
        sizes.append(size)
        size *= 2
    return (*sizes, max_size)


def _first_envs(inputs: ActInput, count: int) -> ActInput:
    """Returns views of the first `count` environments."""
    rows, *others = inputs
    return ActInput(
        map_tensors(lambda x: x[:, :count], rows),
        *map_tensors(lambda x: x[:count], tuple(others)),
    )


def _make_inputs(example: Unrolls, size: int, device: torch.device) -> ActInput:
    """Returns room for `size` environments, filled with zeros."""

    def zeros(*shape: int, dtype: torch.dtype) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=device)

    return ActInput(
        rows=map_tensors(lambda x: zeros(1, size, *x.shape[2:], dtype=x.dtype), example.steps.rows),
        state=map_tensors(
            lambda x: zeros(size, *x.shape[1:], dtype=x.dtype), example.initial_state
        ),
        slots=zeros(size, dtype=torch.int64),
        greedy=zeros(size, dtype=torch.bool),
    )
