"""Networks on a core: the config names the core, and older weights stay readable."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from learner.agents.r2d2 import R2D2Agent
from learner.agents.vtrace import VTraceAgent
from learner.config.agent_config import R2D2Config, VTraceConfig
from learner.config.run_config import NetworkConfig
from learner.networks.actor_critic import ActorCritic
from learner.networks.base import Core, Torso
from learner.networks.core_network import make_core
from learner.networks.torso_core import TorsoCore
from learner.records import Rows, State
from seed.errors import ConfigError
from seed.specs import ArraySpec, EnvSpec
from tests.learner.builders import (
    SCREEN,
    SPEED,
    env_spec,
    random_rows,
    seeded,
    with_random_weights,
)
from tests.support.plugins import install

SPEC = env_spec(SCREEN, SPEED)
CONFIG = NetworkConfig(torso="small_conv", hidden_sizes=(8,), lstm_size=5, center_images=True)


class Sums(Torso):
    """A torso of another package: the sum of each frame of the stack."""

    def __init__(self, leaf: ArraySpec, config: NetworkConfig) -> None:
        super().__init__()
        self.name = leaf.name
        self.output_size = config.frame_stack

    def forward(self, frames: Tensor) -> Tensor:
        return frames.flatten(2).to(torch.float32).sum(-1)


class Rewards(Core):
    """A core of another package that sees only the reward and has no memory."""

    output_size = 1

    def __init__(self, spec: EnvSpec, config: NetworkConfig) -> None:
        super().__init__()

    def initial_state(self, batch_size: int, device: torch.device | str = "cpu") -> State:
        return {}

    def features(self, rows: Rows, state: State) -> tuple[Tensor, State]:
        return rows.rewards.unsqueeze(-1), state


def name_of(cls: type) -> str:
    """Returns the name that `--torso` takes for a class of this module."""
    return f"{cls.__module__}:{cls.__qualname__}"


def test_torso_of_another_package_reads_every_leaf() -> None:
    """The built-in core uses it with frame stack and LSTM, as it does a built-in torso."""
    core = make_core(SPEC, NetworkConfig(torso=name_of(Sums), frame_stack=3))
    assert isinstance(core, TorsoCore)
    assert [(type(t).__name__, vars(t)["name"]) for t in core.torsos] == [
        ("Sums", "screen"),
        ("Sums", "body/speed"),
    ]
    rows = random_rows(SPEC, 4, 2, seeded())
    features, _ = core.features(rows, core.initial_state(2))
    assert features.shape == (4, 2, 6)
    torch.testing.assert_close(features[..., 5], rows.observations[1].sum(-1))


def test_core_of_another_package_takes_the_place_of_the_built_in_one() -> None:
    """The heads read its features; it need not define burn-in and statistics."""
    network = ActorCritic(SPEC, NetworkConfig(torso=name_of(Rewards)))
    assert type(network.core).__name__ == "Rewards"
    rows = random_rows(SPEC, 4, 2, seeded())
    output, state = network(rows, network.initial_state(2))
    torch.testing.assert_close(output.logits, network.policy_head(rows.rewards.unsqueeze(-1)))
    assert network.advance(rows, state) == {}
    network.update_statistics(rows)


def test_torso_of_an_installed_package_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is that of the package's entry point."""
    install(tmp_path, "far-nets", {"seed_rl.torsos": {"rewards": name_of(Rewards)}})
    monkeypatch.syspath_prepend(tmp_path)
    core = make_core(SPEC, NetworkConfig(torso="rewards"))
    assert type(core).__name__ == "Rewards"


@pytest.mark.parametrize("name", ["collections:OrderedDict", "torch.nn:Linear", "math:pi"])
def test_class_that_is_neither_torso_nor_core_is_refused(name: str) -> None:
    """The class is refused before it is built."""
    wanted = f"^torso: expected a class derived from Torso or Core .* got {name}, "
    with pytest.raises(ConfigError, match=wanted):
        make_core(SPEC, NetworkConfig(torso=name))


def test_names_of_saved_weights_stay() -> None:
    """Checkpoints of earlier runs are read by these names."""
    assert set(ActorCritic(SPEC, CONFIG).state_dict()) == {
        "core.torsos.0.image.center.mean",
        "core.torsos.0.image.center.count",
        "core.torsos.0.convs.0.weight",
        "core.torsos.0.convs.0.bias",
        "core.torsos.0.dense.weight",
        "core.torsos.0.dense.bias",
        "core.torsos.1.layers.0.weight",
        "core.torsos.1.layers.0.bias",
        "core.lstm.lstm.weight_ih_l0",
        "core.lstm.lstm.weight_hh_l0",
        "core.lstm.lstm.bias_ih_l0",
        "core.lstm.lstm.bias_hh_l0",
        "policy_head.weight",
        "policy_head.bias",
        "value_head.weight",
        "value_head.bias",
    }


@pytest.mark.parametrize("algorithm", ["vtrace", "r2d2"])
def test_weights_saved_before_networks_held_a_core_are_read(algorithm: str) -> None:
    """Their names have no "core.", and R2D2's networks are one level deeper."""

    def build() -> nn.Module:
        if algorithm == "vtrace":
            return VTraceAgent(SPEC, CONFIG, VTraceConfig(entropy_target=0.5)).build_network()
        return R2D2Agent(SPEC, CONFIG, R2D2Config(head_size=4)).build_network()

    saved = with_random_weights(build()).state_dict()
    old = {name.replace("core.", ""): x for name, x in saved.items()}
    assert old.keys() != saved.keys()
    network = build()
    network.load_state_dict(old)
    for name, x in network.state_dict().items():
        assert torch.equal(x, saved[name]), name
    with pytest.raises(RuntimeError, match="Unexpected key"):
        network.load_state_dict(old | {"lstm.other": torch.zeros(1)})
