"""The base classes of networks, built-in and of other packages.

`--torso` names either a `Torso`, which reads one leaf of the observation, or a `Core`, which
is all of a network but its heads. Called by the inference and trainer threads, each with
networks of its own.
"""

import torch
from torch import Tensor, nn

from learner.config.plugins import load
from learner.config.run_config import TORSOS
from learner.records import Rows, State
from seed.errors import ConfigError, SpecError, expected
from seed.specs import EnvSpec


class Torso(nn.Module):
    """Reads one leaf: [N, S, *shape] -> float32 [N, output_size], S being the frame stack.

    A torso of another package is built as `cls(leaf: ArraySpec, config: NetworkConfig)` for
    each leaf of the observation. It raises a `SpecError` if it cannot read the leaf.
    """

    output_size: int
    """Number of features; set by the constructor."""

    def update_statistics(self, frames: Tensor) -> None:
        """Updates running statistics from frames [N, *shape]; by default there are none."""


class Core(nn.Module):
    """Observations and memory -> features: all of a network but its heads.

    A core of another package is built as `cls(spec: EnvSpec, config: NetworkConfig)`. It
    decides itself which fields of the config it obeys. Acting runs it on one row and keeps the
    state between calls; training runs it on T + 1 rows at once. Both must compute the same
    features: the golden check of a run compares them.
    """

    output_size: int
    """Number of features; set by the constructor."""

    def initial_state(self, batch_size: int, device: torch.device | str = "cpu") -> State:
        """Returns the state before an environment's first row, tensors [B, ...] by name.

        Empty for a core without memory.
        """
        raise NotImplementedError

    def features(self, rows: Rows, state: State) -> tuple[Tensor, State]:
        """Runs rows [T, B] in order from `state` [B, ...].

        Where `rows.is_first`, an episode starts: nothing from before the row may have an
        effect. `rows.rewards` are those the network may see, of moderate size.

        Returns:
          float32 [T, B, output_size], and the state after the last row, of the names, shapes
          and dtypes of `initial_state`.
        """
        raise NotImplementedError

    @torch.no_grad()
    def advance(self, rows: Rows, state: State) -> State:
        """Returns only the state after rows [T, B], as `features` does but without gradient.

        This is burn-in. Override it if the state takes less work than the features.
        """
        return self.features(rows, state)[1]

    def update_statistics(self, rows: Rows) -> None:
        """Updates running statistics from rows [T, B], before they are trained on."""


def num_actions_of(spec: EnvSpec) -> int:
    """Returns the number of actions; raises SpecError where actions are not discrete."""
    if not spec.action.is_discrete:
        refusal = expected("action", "a discrete space", f"{spec.action.dtype} array")
        raise SpecError(f"{refusal} (an agent of your own may take it: --agent module:Name)")
    return spec.action.num_values


def class_of_torso(name: str) -> type[Torso] | type[Core] | None:
    """Returns the class that `--torso` names; None for a built-in torso.

    Raises:
      ConfigError: there is no such name, or it is neither a `Torso` nor a `Core`.
    """
    if name in TORSOS.built_in:
        return None
    found = load(TORSOS, name)
    if not (isinstance(found, type) and issubclass(found, Torso | Core)):
        wanted = "a class derived from Torso or Core of learner.networks.base"
        raise ConfigError(expected(TORSOS.field, wanted, f"{name}, {found!r}"))
    return found
