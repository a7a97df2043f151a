"""What every algorithm provides to the learner: networks, acting, a loss.

An agent has no threads, no transport and no device of its own; inference and
the trainer call it on their copies of the network.
"""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from learner.records import Rows, State, Unrolls


class ActOutput(NamedTuple):
    """What one batched act gives for B environments."""

    actions: Tensor
    """int64 [B]."""
    policy_outputs: dict[str, Tensor]
    """[B, ...] by name: what the loss will want to know of the acting policy."""
    state: State
    """[B, ...]: the network's state after the row."""


class LossOutput(NamedTuple):
    """A loss to differentiate and what to report of it.

    Both add up: the loss of a batch is the sum over any parts it is split into.
    """

    loss: Tensor
    """Scalar."""
    metrics: dict[str, Tensor]
    """Detached scalars by metric name: means over the whole batch, of its valid steps or
    of its unrolls, whichever `num_valid` counts."""
    priorities: Tensor | None = None
    """float32 [b], detached: how much each unroll still has to teach, for replay to
    sample by; None from an algorithm without replay."""


class Agent(Protocol):
    """An algorithm."""

    unroll_length: int
    """T: transitions in an unroll."""
    batch_size: int
    """B: unrolls in one learner step."""

    def build_network(self) -> nn.Module:
        """Returns a freshly initialised network, on the CPU."""
        ...

    def initial_state(self, batch_size: int, device: torch.device) -> State:
        """Returns the network's state [B, ...] before an environment's first row."""
        ...

    def act(
        self,
        network: nn.Module,
        rows: Rows,
        state: State,
        *,
        slots: Tensor,
        generator: torch.Generator,
        greedy: Tensor | None = None,
    ) -> ActOutput:
        """Chooses actions at rows [1, B].

        Args:
          network: one that `build_network` made.
          rows: the newest row of B environments, T = 1.
          state: [B, ...].
          slots: int64 [B]: the environments' seats, for exploration that differs among them.
          generator: source of the sampling noise, on the rows' device.
          greedy: bool [B]: act without exploration here; None for nowhere.
        """
        ...

    def update_statistics(self, network: nn.Module, unrolls: Unrolls) -> None:
        """Lets the network's buffers (running means) take note of a batch, before its loss."""
        ...

    def num_valid(self, unrolls: Unrolls) -> Tensor:
        """Returns what the means over a batch divide by, float32 scalar."""
        ...

    def loss(
        self,
        network: nn.Module,
        unrolls: Unrolls,
        num_valid: Tensor,
        importance_weights: Tensor | None = None,
        progress: float = 0.0,
    ) -> LossOutput:
        """Returns the loss of unrolls [T + 1, b] that are all or a part of a batch.

        Args:
          network: the one to differentiate.
          unrolls: of the batch.
          num_valid: of the whole batch.
          importance_weights: float32 [b], where replay sampled unevenly.
          progress: how much of the run is done, in [0, 1], for what changes with it.
        """
        ...

    def after_update(self, network: nn.Module, learner_step: int) -> None:
        """Lets what trails the trained weights (a target network) follow them.

        Args:
          network: the trained one, just updated.
          learner_step: updates made, this one included.
        """
        ...

    def log_ratios(self, network: nn.Module, unrolls: Unrolls) -> Tensor:
        """Returns what must vanish where `network` holds the weights that acted.

        float32 [T + 1, B]: the difference between what the network now says of
        the chosen actions and what was recorded. This is the golden check.
        """
        ...
