"""The golden check itself: the rows it compares, with which weights, and what it finds."""

import pytest
import torch
from torch import Tensor, nn

from learner.agents.base import ActInput
from learner.agents.steps import make_step
from learner.agents.vtrace import VTraceAgent
from learner.config.agent_config import VTraceConfig
from learner.config.run_config import NetworkConfig
from learner.records import Rows, Unrolls, map_tensors
from learner.training.zero_lag_check import ZeroLagCheck
from tests.learner.builders import (
    SCREEN,
    SPEED,
    env_spec,
    numbered_unrolls,
    random_rows,
    seeded,
    with_random_weights,
)
from tests.support.fake_agent import FakeAgent


class Weight(nn.Module):
    """A network of one number."""

    def __init__(self, number: float = 0) -> None:
        super().__init__()
        self.number = nn.Parameter(torch.tensor(float(number)))


class RowNumberAgent(FakeAgent):
    """Deviates by the weight plus a hundredth for each row of the unroll."""

    def log_ratios(self, network: nn.Module, unrolls: Unrolls) -> Tensor:
        assert isinstance(network, Weight)
        row = torch.arange(len(unrolls.steps.actions)).unsqueeze(1)
        # Negative: the check must take the size, not the value.
        return -(network.number.detach() + 0.01 * row).expand(unrolls.steps.actions.shape)


def make_check(every_steps: int = 1) -> ZeroLagCheck:
    """Returns a check of `RowNumberAgent`."""
    return ZeroLagCheck(RowNumberAgent(), Weight(), every_steps)


def acted_by(*unrolls: list[int]) -> Unrolls:
    """Returns unrolls whose rows the given versions chose."""
    versions = torch.tensor(unrolls).T
    numbered = numbered_unrolls([0] * len(unrolls), num_rows=len(versions))
    return numbered._replace(steps=numbered.steps._replace(policy_versions=versions))


def test_nothing_is_compared_before_the_first_publication() -> None:
    """There are no weights to compare with."""
    assert make_check().compare(acted_by([0, 0, 0])) is None


def test_only_rows_before_the_first_of_other_weights_count() -> None:
    """The state of every later row was made by other weights."""
    check = make_check()
    check.published(Weight(5.0), 1)
    deviation = check.compare(acted_by([1, 1, 2, 1], [0, 1, 1, 1]))
    assert deviation == pytest.approx(5.01)


def test_weights_are_kept_until_their_rows_come() -> None:
    """Batches lag behind, and newer versions are published meanwhile."""
    check = make_check()
    check.published(Weight(5.0), 1)
    check.published(Weight(6.0), 2)
    assert check.compare(acted_by([0, 0, 0])) is None
    check.published(Weight(7.0), 3)
    assert check.compare(acted_by([1, 2, 2])) == pytest.approx(5.0)


def test_kept_weights_are_a_copy() -> None:
    """The optimiser goes on writing to the network that was offered."""
    check, network = make_check(), Weight(5.0)
    check.published(network, 1)
    with torch.no_grad():
        network.number.fill_(99.0)
    assert check.compare(acted_by([1, 1])) == pytest.approx(5.01)


def test_one_comparison_for_each_version_kept() -> None:
    """Each comparison costs a forward pass of the batch."""
    check = make_check()
    check.published(Weight(5.0), 1)
    assert check.compare(acted_by([1, 1])) is not None
    assert check.compare(acted_by([1, 1])) is None


def test_one_version_in_every_so_many_is_kept() -> None:
    """The first is kept, then the first that is `every_steps` later."""
    check = make_check(every_steps=10)
    compared = []
    for version in range(1, 25):
        check.published(Weight(version), version)
        if check.compare(acted_by([version])) is not None:
            compared.append(version)
    assert compared == [1, 11, 21]


def test_version_that_never_acted_is_given_up() -> None:
    """Inference skips versions while the trainer is fast, and the next is kept instead."""
    check = make_check()
    check.published(Weight(5.0), 1)
    assert check.compare(acted_by([2, 2], [2, 3])) is None
    check.published(Weight(6.0), 4)
    assert check.compare(acted_by([4, 4])) == pytest.approx(6.01)


def acted_unrolls(agent: VTraceAgent, network: nn.Module, version: int) -> Unrolls:
    """Returns unrolls [T + 1, B] that were acted row by row, as inference acts."""
    generator, batch_size = seeded(3), 4
    state = agent.initial_state(batch_size, torch.device("cpu"))
    initial, steps, slots = state, [], torch.arange(batch_size)
    rows = random_rows(agent.spec, agent.unroll_length + 1, batch_size, generator)
    previous = rows.previous_actions[:1]
    for t in range(agent.unroll_length + 1):
        row = map_tensors(lambda x, t=t: x[t : t + 1], rows)._replace(previous_actions=previous)
        with torch.inference_mode():
            output = agent.act(network, ActInput(row, state, slots), generator)
        steps.append(make_step(row, output, state, version).steps)
        previous, state = output.actions.unsqueeze(0), output.state
    return Unrolls(map_tensors(lambda *xs: torch.cat(xs), *steps), initial)


def _with_rows(unrolls: Unrolls, rows: Rows) -> Unrolls:
    return unrolls._replace(steps=unrolls.steps._replace(rows=rows))


def _shift_rewards(unrolls: Unrolls) -> Unrolls:
    rows = unrolls.steps.rows
    return _with_rows(unrolls, rows._replace(rewards=rows.rewards.roll(1, 0)))


def _forget_an_episode_start(unrolls: Unrolls) -> Unrolls:
    # The actions stay as they were, and alone would not show the fault.
    rows = unrolls.steps.rows
    previous = torch.cat([rows.previous_actions[:1], unrolls.steps.actions[:-1]])
    none = torch.zeros_like(rows.is_first)
    return _with_rows(unrolls, rows._replace(is_first=none, previous_actions=previous))


def _swap_states(unrolls: Unrolls) -> Unrolls:
    # In a first row the state does not matter.
    state = {name: torch.ones_like(x) for name, x in unrolls.initial_state.items()}
    return _forget_an_episode_start(unrolls)._replace(initial_state=state)


FAULTS = (_shift_rewards, _forget_an_episode_start, _swap_states)


@pytest.mark.parametrize("center_images", [False, True])
@pytest.mark.parametrize("lstm_size", [0, 6])
def test_outputs_that_acted_can_be_recomputed(lstm_size: int, center_images: bool) -> None:
    """The real agent passes with random episode ends, and each fault is found."""
    network_config = NetworkConfig(
        hidden_sizes=(8,),
        lstm_size=lstm_size,
        frame_stack=3,
        see_last_step=True,
        center_images=center_images,
    )
    agent = VTraceAgent(env_spec(SCREEN, SPEED), network_config, VTraceConfig(unroll_length=7))
    network = with_random_weights(agent.build_network()).eval()
    unrolls = acted_unrolls(agent, network, version=3)
    check = ZeroLagCheck(agent, agent.build_network(), every_steps=1)
    # Offered in training mode, as the trainer does.
    check.published(network.train(), 3)
    deviation = check.compare(unrolls)
    assert deviation is not None
    assert deviation < 1e-5
    for number, fault in enumerate(FAULTS, start=4):
        check.published(network, number)
        versions = torch.full_like(unrolls.steps.actions, number)
        faulty = fault(unrolls)
        deviation = check.compare(
            faulty._replace(steps=faulty.steps._replace(policy_versions=versions))
        )
        assert deviation is not None
        assert deviation > 0.01


@pytest.mark.parametrize("shift", [1, -1])
def test_actions_shifted_against_their_rows_are_a_bug(shift: int) -> None:
    """Log ratios alone would not show it, as both sides take the same action."""
    check = make_check()
    check.published(Weight(), 0)
    unrolls = acted_by([0, 0, 0, 0])
    actions = torch.tensor([[1], [2], [3], [1]])
    none = torch.zeros(4, 1, dtype=torch.bool)
    rows = unrolls.steps.rows._replace(previous_actions=actions.roll(1 + shift, 0), is_first=none)
    shifted = unrolls._replace(steps=unrolls.steps._replace(rows=rows, actions=actions))
    with pytest.raises(AssertionError, match="shifted"):
        check.compare(shifted)
