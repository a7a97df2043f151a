"""A whole network: vectors and discrete values -> a GRU, which is its memory."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from learner.config.run_config import NetworkConfig
from learner.networks.base import Core
from learner.records import Rows, State
from seed.specs import ArraySpec, EnvSpec


class GRUCore(Core):
    """Its size is the last of --hidden-sizes, and it ignores the config's other fields."""

    def __init__(self, spec: EnvSpec, config: NetworkConfig) -> None:
        super().__init__()
        self.leaves = spec.observations
        num_inputs = sum(leaf.num_values or math.prod(leaf.shape) for leaf in self.leaves)
        self.output_size = config.hidden_sizes[-1]
        self.encoder = nn.Linear(num_inputs, self.output_size)
        self.cell = nn.GRUCell(self.output_size, self.output_size)

    def initial_state(self, batch_size: int, device: torch.device | str = "cpu") -> State:
        return {"memory": torch.zeros(batch_size, self.output_size, device=device)}

    def features(self, rows: Rows, state: State) -> tuple[Tensor, State]:
        leaves = zip(self.leaves, rows.observations, strict=True)
        inputs = torch.cat([_as_vectors(leaf, x) for leaf, x in leaves], dim=-1)
        inputs = self.encoder(inputs).relu()  # [T, B, H]
        memory, outputs = state["memory"], []
        for row, is_first in zip(inputs, rows.is_first, strict=True):
            memory = memory.masked_fill(is_first.unsqueeze(-1), 0)  # no other episode
            memory = self.cell(row, memory)
            outputs.append(memory)
        return torch.stack(outputs), {"memory": memory}


def _as_vectors(leaf: ArraySpec, values: Tensor) -> Tensor:
    """Returns float32 [T, B, F]: one-hot where the leaf is discrete, flat where it is not."""
    if leaf.num_values:
        values = functional.one_hot(values.long(), leaf.num_values)
    return values.flatten(2).to(torch.float32)
