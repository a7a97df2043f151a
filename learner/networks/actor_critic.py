"""Policy and value over one shared core: what V-trace trains."""

from typing import NamedTuple

from torch import Tensor, nn

from learner.config.run_config import NetworkConfig
from learner.networks.base import num_actions_of
from learner.networks.core_network import CoreNetwork
from learner.networks.torsos import initialize
from learner.records import Rows, State
from seed.specs import EnvSpec


class ActorCriticOutput(NamedTuple):
    """The network's outputs at each row."""

    logits: Tensor
    """float32 [T, B, A]: unnormalised log-probabilities of the policy."""
    values: Tensor
    """float32 [T, B]."""


class ActorCritic(CoreNetwork):
    """Core -> a linear head for the policy and one for the value."""

    def __init__(self, spec: EnvSpec, config: NetworkConfig) -> None:
        """Raises SpecError if actions are not discrete or the core cannot read observations."""
        num_actions = num_actions_of(spec)
        super().__init__(spec, config)
        self.policy_head = nn.Linear(self.core.output_size, num_actions)
        self.value_head = nn.Linear(self.core.output_size, 1)
        # The policy starts near uniform for any features.
        initialize(self.policy_head, gain=0.01)
        initialize(self.value_head, gain=1.0)

    def forward(self, rows: Rows, state: State) -> tuple[ActorCriticOutput, State]:
        """Runs rows [T, B] in order from `state` [B, ...]; see `Core.features`."""
        features, next_state = self.core.features(rows, state)
        values = self.value_head(features).squeeze(-1)
        return ActorCriticOutput(self.policy_head(features), values), next_state
