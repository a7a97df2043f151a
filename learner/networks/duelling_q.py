"""Q values by the duelling architecture (Wang et al. 2016): what R2D2 trains."""

from torch import Tensor, nn

from learner.config.run_config import NetworkConfig
from learner.networks.core import Core
from learner.networks.torsos import initialize
from learner.records import Rows, State
from seed.specs import EnvSpec


class DuellingQ(Core):
    """Core -> a head for the state's value and one for the actions' advantages."""

    def __init__(self, spec: EnvSpec, config: NetworkConfig, head_size: int) -> None:
        """`head_size` units in the hidden layer of each head; 0 for linear heads."""
        super().__init__(spec, config)
        self.value_head = _make_head(self.output_size, head_size, 1)
        self.advantage_head = _make_head(self.output_size, head_size, self.num_actions)

    def forward(self, rows: Rows, state: State) -> tuple[Tensor, State]:
        """Runs rows [T, B] in order from `state` [B, ...]; see `Core.features`.

        Returns:
          Q(a) = V + A(a) - mean_a A(a) (Wang et al. 2016, eq. 9), float32 [T, B, A], and
          the state after the last row.
        """
        features, next_state = self.features(rows, state)
        advantages = self.advantage_head(features)
        centred = advantages - advantages.mean(-1, keepdim=True)
        return self.value_head(features) + centred, next_state


def _make_head(input_size: int, hidden_size: int, output_size: int) -> nn.Sequential:
    hidden = [nn.Linear(input_size, hidden_size), nn.ReLU()] if hidden_size else []
    output = nn.Linear(hidden_size or input_size, output_size)
    head = nn.Sequential(*hidden, output)
    initialize(head)
    # Q values that start near zero: the first targets are the rewards, not the noise
    # of untrained weights, which many copies of the target network would hand on.
    initialize(output, gain=0.01)
    return head
