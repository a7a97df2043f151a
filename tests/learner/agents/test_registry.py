"""Which agent each name makes, and which names and classes are refused."""

import dataclasses
from pathlib import Path
from typing import ClassVar

import pytest

from learner.agents.r2d2 import R2D2Agent
from learner.agents.registry import agent_class_of, check_classes, make_agent
from learner.agents.vtrace import VTraceAgent
from learner.config.agent_config import AgentConfig, R2D2Config, VTraceConfig
from learner.config.run_config import NetworkConfig, RunConfig
from seed.errors import ConfigError, SpecError
from seed.specs import ArraySpec
from tests.learner.builders import env_spec
from tests.support.plugins import install


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnConfig(AgentConfig):
    """The config of an agent of another package."""

    num_rows: ClassVar[int] = 5  # pyright: ignore[reportIncompatibleMethodOverride]


class OwnAgent(VTraceAgent):
    """An agent of another package, which names its own config."""

    Config = OwnConfig

    def __init__(self, spec: object, network: object, agent: OwnConfig) -> None:
        self.given = (spec, network, agent)


class Unfinished:
    """An agent that has a config and lacks most methods."""

    Config = VTraceConfig

    def loss(self) -> None: ...


def name_of(cls: type) -> str:
    """Returns the name that `--agent` takes for a class of this module."""
    return f"{cls.__module__}:{cls.__qualname__}"


@pytest.mark.parametrize(
    ("config", "cls", "unroll_length"),
    [
        (VTraceConfig(unroll_length=3, batch_size=2), VTraceAgent, 3),
        (R2D2Config(sequence_length=4, batch_size=2, head_size=4), R2D2Agent, 4),
    ],
)
def test_built_in_agent_is_made_by_its_config(
    config: AgentConfig, cls: type, unroll_length: int
) -> None:
    """The agent has the unroll length and batch size of its config."""
    agent = make_agent(env_spec(), RunConfig(agent=config))
    assert isinstance(agent, cls)
    assert (agent.unroll_length, agent.batch_size) == (unroll_length, 2)


def test_agent_of_another_package_is_built_from_spec_network_and_its_config() -> None:
    """It is built in the same way as a built-in agent."""
    config = RunConfig(agent=OwnConfig(algorithm=name_of(OwnAgent)))
    agent, spec = make_agent(env_spec(), config), env_spec()
    assert vars(agent)["given"] == (spec, config.network, config.agent)


def test_agent_of_an_installed_package_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is that of the package's entry point."""
    install(tmp_path, "far-agents", {"seed_rl.agents": {"own": name_of(OwnAgent)}})
    monkeypatch.syspath_prepend(tmp_path)
    assert agent_class_of("own").__name__ == "OwnAgent"


def test_class_that_lacks_methods_is_refused_with_their_names() -> None:
    """The class is refused before it is built."""
    with pytest.raises(ConfigError) as caught:
        agent_class_of(name_of(Unfinished))
    message = str(caught.value)
    assert message.startswith("agent: expected a class with the methods of learner.agents.base")
    lacking = message.split("which lacks ")[1].split(", ")
    assert {"act", "build_network", "initial_state"} <= set(lacking)
    assert "loss" not in lacking


def test_classes_are_checked_before_an_environment_is_known() -> None:
    """Else a learner would wait for its first actor and then fail."""
    check_classes(RunConfig())
    with pytest.raises(ConfigError, match="^agent: expected a class with the methods"):
        check_classes(RunConfig(agent=VTraceConfig(algorithm=name_of(Unfinished))))
    with pytest.raises(ConfigError, match="^torso: expected a class derived from Torso or Core"):
        check_classes(RunConfig(network=NetworkConfig(torso=name_of(Unfinished))))


def test_config_of_another_agent_is_refused() -> None:
    """The error says that the name and the config contradict each other."""
    with pytest.raises(ConfigError, match="^agent: expected R2D2Config, got VTraceConfig for r2d2"):
        make_agent(env_spec(), RunConfig(agent=VTraceConfig(algorithm="r2d2")))


def test_config_without_a_name_is_refused() -> None:
    """A config of another package has no name unless its author or the command line gives one."""
    with pytest.raises(ConfigError, match="^agent: expected one of 'vtrace', 'r2d2', or module"):
        make_agent(env_spec(), RunConfig(agent=OwnConfig()))


@pytest.mark.parametrize("config", [VTraceConfig(), R2D2Config()])
def test_built_in_agents_refuse_continuous_actions(config: AgentConfig) -> None:
    """The error says that another agent may take them."""
    action = ArraySpec(name="action", dtype="float32", shape=(2,))
    spec = dataclasses.replace(env_spec(), action=action)
    with pytest.raises(SpecError, match="^action: expected a discrete space, got float32 array .*"):
        make_agent(spec, RunConfig(agent=config))


def test_agent_of_another_package_decides_itself_which_actions_it_takes() -> None:
    """The registry checks no actions before it builds such an agent."""
    action = ArraySpec(name="action", dtype="float32", shape=(2,))
    spec = dataclasses.replace(env_spec(), action=action)
    config = RunConfig(agent=OwnConfig(algorithm=name_of(OwnAgent)))
    assert vars(make_agent(spec, config))["given"][0] is spec
