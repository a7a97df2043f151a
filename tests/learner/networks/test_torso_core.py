"""The built-in core: burn-in gives the state that a forward of all rows has."""

import dataclasses

import pytest
import torch
from torch import Tensor

from learner.config.run_config import NetworkConfig
from learner.networks.torso_core import TorsoCore
from learner.records import map_tensors
from seed.errors import SpecError
from seed.specs import ArraySpec
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
    """Rows may be split anywhere; the features are equal, and burn-in rows get no gradient."""
    config = NetworkConfig(hidden_sizes=(8,), lstm_size=lstm_size, frame_stack=frame_stack)
    spec = env_spec(SCREEN, SPEED)
    core = with_random_weights(TorsoCore(spec, config))
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
    """The output of a torso has no influence on the state."""
    spec = env_spec(SPEED)
    core = TorsoCore(spec, NetworkConfig(frame_stack=3))

    def fail(*args: object) -> Tensor:
        raise AssertionError

    core.torsos[0].forward = fail
    state = core.advance(random_rows(spec, T, B, seeded(2)), core.initial_state(B))
    assert state.keys() == {"frames/body/speed"}


def test_last_action_is_seen_only_where_actions_can_be_counted() -> None:
    """The last action is an input in one-hot form."""
    action = ArraySpec(name="action", dtype="float32", shape=(2,))
    spec = dataclasses.replace(env_spec(), action=action)
    TorsoCore(spec, NetworkConfig())
    with pytest.raises(SpecError, match="^action: expected a discrete space, got float32 array"):
        TorsoCore(spec, NetworkConfig(see_last_step=True))
