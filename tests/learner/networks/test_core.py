"""What networks share: burn-in carries the state on, and names on disk stay as they are."""

import pytest
import torch
from torch import Tensor

from learner.config.run_config import NetworkConfig
from learner.networks.actor_critic import ActorCritic
from learner.networks.core import Core
from learner.records import map_tensors
from tests.learner.builders import (
    SCREEN,
    SPEED,
    env_spec,
    random_rows,
    seeded,
    with_random_weights,
)

T, B = 8, 3


@pytest.mark.parametrize("frame_stack", [1, 3])
@pytest.mark.parametrize("lstm_size", [0, 5])
def test_advance_gives_the_state_to_go_on_from(lstm_size: int, frame_stack: int) -> None:
    """Rows split anywhere give the features of one long run, without gradient before."""
    config = NetworkConfig(hidden_sizes=(8,), lstm_size=lstm_size, frame_stack=frame_stack)
    spec = env_spec(SCREEN, SPEED)
    core = with_random_weights(Core(spec, config))
    rows = random_rows(spec, T, B, seeded(1))
    expected, last_state = core.features(rows, core.initial_state(B))
    assert expected.shape == (T, B, core.output_size)
    for split in range(1, T):
        before, after = (
            map_tensors(lambda x, part=part: x[part], rows)
            for part in (slice(0, split), slice(split, T))
        )
        state = core.advance(before, core.initial_state(B))
        assert not any(x.requires_grad for x in state.values())
        features, state = core.features(after, state)
        torch.testing.assert_close(features, expected[split:])
        assert state.keys() == last_state.keys()
        for name, x in state.items():
            torch.testing.assert_close(x, last_state[name])


def test_advance_without_an_lstm_runs_no_torso() -> None:
    """Nothing that a torso says is carried on."""
    spec = env_spec(SPEED)
    core = Core(spec, NetworkConfig(frame_stack=3))

    def fail(*args: object) -> Tensor:
        raise AssertionError

    core.torsos[0].forward = fail
    state = core.advance(random_rows(spec, T, B, seeded(2)), core.initial_state(B))
    assert state.keys() == {"frames/body/speed"}


def test_names_of_saved_weights_stay() -> None:
    """Checkpoints of earlier runs are read by them."""
    config = NetworkConfig(torso="small_conv", hidden_sizes=(8,), lstm_size=5, center_images=True)
    assert set(ActorCritic(env_spec(SCREEN, SPEED), config).state_dict()) == {
        "torsos.0.image.center.mean",
        "torsos.0.image.center.count",
        "torsos.0.convs.0.weight",
        "torsos.0.convs.0.bias",
        "torsos.0.dense.weight",
        "torsos.0.dense.bias",
        "torsos.1.layers.0.weight",
        "torsos.1.layers.0.bias",
        "lstm.lstm.weight_ih_l0",
        "lstm.lstm.weight_hh_l0",
        "lstm.lstm.bias_ih_l0",
        "lstm.lstm.bias_hh_l0",
        "policy_head.weight",
        "policy_head.bias",
        "value_head.weight",
        "value_head.bias",
    }
