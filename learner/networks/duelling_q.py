"""Q values by the duelling architecture (Wang et al. 2016): what R2D2 trains."""

from torch import Tensor, nn

from learner.config.run_config import NetworkConfig
from learner.networks.base import num_actions_of
from learner.networks.core_network import CoreNetwork
from learner.networks.torsos import initialize
from learner.records import Rows, State
from seed.specs import EnvSpec


class DuellingQ(CoreNetwork):
    """Core -> a head for the state's value and one for the actions' advantages."""

    def __init__(self, spec: EnvSpec, config: NetworkConfig, head_size: int) -> None:
        """Each head has `head_size` units in its hidden layer; 0 for linear heads.

        Raises SpecError if actions are not discrete or the core cannot read observations.
        """
        num_actions = num_actions_of(spec)
        super().__init__(spec, config)
        size = self.core.output_size
        self.value_head = _make_head(size, head_size, 1)
        self.advantage_head = _make_head(size, head_size, num_actions)

    def forward(self, rows: Rows, state: State) -> tuple[Tensor, State]:
        """Runs rows [T, B] in order from `state` [B, ...]; see `Core.features`.

        Returns:
          Q(a) = V + A(a) - mean_a A(a) (Wang et al. 2016, eq. 9), float32 [T, B, A], and
          the state after the last row.
        """
        features, next_state = self.core.features(rows, state)
        advantages = self.advantage_head(features)
        centred = advantages - advantages.mean(-1, keepdim=True)
        return self.value_head(features) + centred, next_state


def _make_head(input_size: int, hidden_size: int, output_size: int) -> nn.Sequential:
    hidden = [nn.Linear(input_size, hidden_size), nn.ReLU()] if hidden_size else []
    output = nn.Linear(hidden_size or input_size, output_size)
    head = nn.Sequential(*hidden, output)
    initialize(head)
    # Q values start near zero. So the first targets are the rewards, not the noise of
    # untrained weights, which many copies of the target network would hand on.
    initialize(output, gain=0.01)
    return head
