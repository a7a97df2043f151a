"""A torso for values of very different sizes: symlog (Hafner et al. 2023), then one layer."""

import math

import torch
from torch import Tensor, nn

from learner.config.run_config import NetworkConfig
from learner.networks.base import Torso
from seed.specs import ArraySpec


class SymlogTorso(Torso):
    """[N, S, *shape] -> float32 [N, H], H being the last of --hidden-sizes."""

    def __init__(self, leaf: ArraySpec, config: NetworkConfig) -> None:
        super().__init__()
        self.output_size = config.hidden_sizes[-1]
        self.layer = nn.Linear(config.frame_stack * math.prod(leaf.shape), self.output_size)

    def forward(self, frames: Tensor) -> Tensor:
        values = frames.flatten(1).to(torch.float32)
        return self.layer(values.sign() * values.abs().log1p()).relu()
