"""What an agent may leave out, and what it gets in its place."""

import pytest
import torch
from torch import nn

from learner.agents.base import Agent
from tests.learner.builders import numbered_unrolls
from tests.support.fake_agent import FakeAgent


def test_agent_that_lacks_a_method_cannot_be_built() -> None:
    """Python names the abstract methods that a subclass does not define."""

    class Unfinished(FakeAgent):
        loss = Agent.loss

    with pytest.raises(TypeError, match="loss"):
        Unfinished()  # pyright: ignore[reportAbstractUsage]


def test_all_of_the_network_acts_by_default_and_only_the_optimiser_changes_it() -> None:
    """`acting_part` returns the network; the hooks around an update leave it as it is."""
    agent, network = FakeAgent(), nn.BatchNorm1d(2)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    assert agent.acting_part(network) is network
    agent.update_statistics(network, numbered_unrolls([1, 2]))
    agent.after_update(network, 1)
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name])
