"""A network with heads: the config names its core, the agent adds the heads.

Called by the inference and trainer threads, each with networks of its own.
"""

from collections.abc import MutableMapping
from typing import Any

import torch
from torch import Tensor, nn

from learner.config.run_config import NetworkConfig
from learner.networks.base import Core, class_of_torso
from learner.networks.torso_core import TorsoCore
from learner.records import Rows, State
from seed.specs import EnvSpec


def make_core(spec: EnvSpec, config: NetworkConfig) -> Core:
    """Returns the core that `config.torso` names, freshly initialised.

    Raises:
      ConfigError: there is no such torso or core.
      SpecError: it cannot read the observations.
    """
    cls = class_of_torso(config.torso)
    if cls is not None and issubclass(cls, Core):
        return cls(spec, config)
    return TorsoCore(spec, config)


class CoreNetwork(nn.Module):
    """A network on a core. A subclass puts heads behind `self.core` and defines `forward`."""

    def __init__(self, spec: EnvSpec, config: NetworkConfig) -> None:
        super().__init__()
        self.core = make_core(spec, config)
        self.register_load_state_dict_pre_hook(_add_prefix_of_core)

    def initial_state(self, batch_size: int, device: torch.device | str = "cpu") -> State:
        """See `Core.initial_state`."""
        return self.core.initial_state(batch_size, device)

    def advance(self, rows: Rows, state: State) -> State:
        """See `Core.advance`."""
        return self.core.advance(rows, state)

    def update_statistics(self, rows: Rows) -> None:
        """See `Core.update_statistics`."""
        self.core.update_statistics(rows)


def _add_prefix_of_core(
    _: nn.Module, weights: MutableMapping[str, Tensor], prefix: str, *args: Any
) -> None:
    """Renames weights of old checkpoints, whose networks were cores: "lstm.x"."""
    del args
    for part in ("torsos.", "lstm."):
        for name in [name for name in weights if name.startswith(prefix + part)]:
            weights[f"{prefix}core.{name.removeprefix(prefix)}"] = weights.pop(name)
