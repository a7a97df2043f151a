"""What a core of another package may leave out, and which names mean a class."""

import pytest
import torch
from torch import Tensor, nn

from learner.networks.base import Core, Torso, class_of_torso
from learner.records import Rows, State
from seed.errors import ConfigError
from tests.learner.builders import env_spec, random_rows, seeded


class RunningSum(Core):
    """Features are the sum of the observations of the episode, scaled by one weight."""

    output_size = 3

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.5))

    def initial_state(self, batch_size: int, device: torch.device | str = "cpu") -> State:
        return {"sum": torch.zeros(batch_size, 3, device=device)}

    def features(self, rows: Rows, state: State) -> tuple[Tensor, State]:
        total, sums = state["sum"], []
        for observation, is_first in zip(rows.observations[0], rows.is_first, strict=True):
            total = torch.where(is_first.unsqueeze(-1), 0, total) + self.scale * observation
            sums.append(total)
        return torch.stack(sums), {"sum": total}


def test_burn_in_carries_the_state_on_without_gradient() -> None:
    """`advance` returns the state of `features` for a core that does not override it."""
    core, rows = RunningSum(), random_rows(env_spec(), 4, 2, seeded())
    state = core.advance(rows, core.initial_state(2))
    expected = core.features(rows, core.initial_state(2))[1]
    assert expected["sum"].requires_grad
    assert not state["sum"].requires_grad
    assert torch.equal(state["sum"], expected["sum"])


def test_torso_is_named_by_its_class_or_by_a_built_in_name() -> None:
    """A built-in name means no class; a class that is no torso is refused by the flag's name."""
    assert class_of_torso("auto") is None
    assert class_of_torso("learner.networks.base:Torso") is Torso
    with pytest.raises(ConfigError, match="torso: expected a class derived from Torso or Core"):
        class_of_torso("learner.networks.base:num_actions_of")
