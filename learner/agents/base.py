"""The protocol of an algorithm: networks, acting, an experience, a loss.

An agent has no threads, no transport and no device of its own. Inference and the trainer call
it on their copies of the network. It names its config (`Config`), makes the experience that
its batches come from (`make_experience`), and names the part of its network that acts
(`acting_part`).

Inherit from `Agent`: methods that an algorithm may leave out have a body here.
"""

import abc
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from learner.experience.base import Experience, ExperienceContext
from learner.records import Batch, Rows, State, Unrolls


class ActInput(NamedTuple):
    """The inputs of one batched act of B environments."""

    rows: Rows
    """[1, B, ...]: the newest row of each."""
    state: State
    """[B, ...]: the network's state before the row."""
    slots: Tensor
    """int64 [B]: the environments' seats, for exploration that differs among them."""
    greedy: Tensor | None = None
    """bool [B]: which act without exploration; None: all explore."""


class ActOutput(NamedTuple):
    """The result of one batched act, of B environments."""

    actions: Tensor
    """int64 [B]."""
    policy_outputs: dict[str, Tensor]
    """[B, ...] by name: outputs of the acting policy that the loss needs."""
    state: State
    """[B, ...]: the network's state after the row."""
    values: Tensor | None = None
    """float32 [B]: estimated return from the row on, for observers of steps. Not stored."""


class LossOutput(NamedTuple):
    """A loss to differentiate, and its metrics.

    Both add up: those of a batch are the sums over any parts that it is split into.
    """

    loss: Tensor
    """Scalar."""
    metrics: dict[str, Tensor]
    """Detached scalars by metric name: means over the whole batch, over its valid steps or
    its unrolls, as `num_valid` counts them; or sums from which `finish_metrics` computes one."""
    priorities: Tensor | None = None
    """float32 [b], detached: the priority by which replay samples each unroll; None from an
    algorithm without replay."""


class Agent(Protocol):
    """An algorithm. Built as `cls(spec, network_config, agent_config)`."""

    Config: ClassVar[type]
    """The frozen dataclass of its settings: a subclass of `AgentConfig`. Its fields are flags."""
    unroll_length: int
    """T: transitions in an unroll."""
    batch_size: int
    """B: unrolls in one learner step. Environments start out of phase in blocks of B, so that
    their unrolls do not complete all at once; 0: all in phase."""

    @abc.abstractmethod
    def build_network(self) -> nn.Module:
        """Returns a freshly initialised network, on the CPU."""
        ...

    def acting_part(self, network: nn.Module) -> nn.Module:
        """Returns the part of a network of `build_network` that `act` reads.

        Only this part is published to acting. By default it is all of the network.
        """
        return network

    @abc.abstractmethod
    def initial_state(self, batch_size: int, device: torch.device) -> State:
        """Returns the network's state [B, ...] before an environment's first row."""
        ...

    @abc.abstractmethod
    def act(self, network: nn.Module, inputs: ActInput, generator: torch.Generator) -> ActOutput:
        """Chooses actions at the newest row of B environments.

        Args:
          network: the acting part of one that `build_network` made.
          inputs: rows [1, B], state, slots, and where to act greedily.
          generator: source of the sampling noise, on the rows' device.
        """
        ...

    @abc.abstractmethod
    def make_experience(self, context: ExperienceContext) -> Experience:
        """Returns the experience, which takes completed unrolls and returns batches."""
        ...

    def update_statistics(self, network: nn.Module, unrolls: Unrolls) -> None:
        """Updates the network's buffers (running means) from a batch, before its loss."""

    @abc.abstractmethod
    def num_valid(self, unrolls: Unrolls) -> Tensor:
        """Returns the divisor of means over a batch, float32 scalar."""
        ...

    @abc.abstractmethod
    def loss(
        self, network: nn.Module, batch: Batch, num_valid: Tensor, progress: float
    ) -> LossOutput:
        """Returns the loss of unrolls [T + 1, b] that are all or a part of a batch.

        Args:
          network: the one to differentiate.
          batch: the unrolls, and their importance weights where replay sampled unevenly.
          num_valid: of the whole batch.
          progress: how much of the run is done, in [0, 1], for schedules.
        """
        ...

    def finish_metrics(self, metrics: dict[str, float]) -> dict[str, float]:
        """Returns the metrics to report of an update; by default those of `loss`.

        Args:
          metrics: those of `loss`, added up over the parts of the batch, and the trainer's own.
        """
        return metrics

    def after_update(self, network: nn.Module, learner_step: int) -> None:
        """Updates what follows the trained weights, such as a target network.

        Args:
          network: the trained one, just updated.
          learner_step: updates made, this one included.
        """

    @abc.abstractmethod
    def log_ratios(self, network: nn.Module, unrolls: Unrolls) -> Tensor:
        """Returns a difference that is 0 where `network` holds the weights that acted.

        float32 [T + 1, B]: the network's present output for the chosen actions, minus the
        recorded one. The golden check reads it.

        Args:
          network: the acting part of one that `build_network` made.
          unrolls: as they were stored.
        """
        ...
