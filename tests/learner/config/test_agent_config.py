"""What the configs of all algorithms share, and where the built-in ones differ."""

import dataclasses
import math
import pickle
from pathlib import Path

import pytest
import yaml

from learner.config.agent_config import (
    AgentConfig,
    R2D2Config,
    ReplayConfig,
    VTraceConfig,
    config_class_of,
)
from learner.config.config_file import dump_config, load_config
from learner.config.run_config import LearnerConfig, RunConfig
from seed.errors import ConfigError
from tests.support.plugins import write_module


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlainConfig(AgentConfig):
    """The fewest settings that an algorithm of another package can have."""

    rollout_length: int = 5
    """T."""

    @property
    def num_rows(self) -> int:
        return self.rollout_length + 1


def test_config_of_another_package_needs_to_say_only_how_many_rows_it_trains_on() -> None:
    """By default each collected unroll is trained on once, and no rows come before."""
    config = PlainConfig(batch_size=12)
    assert config.unrolls_per_update == 12
    assert config.env_steps_per_update == 60
    assert config.env_steps_before_training == 0
    assert config.share(4) == PlainConfig(batch_size=3)


def test_config_that_does_not_say_how_many_rows_cannot_be_made() -> None:
    """The base class alone is no config."""
    with pytest.raises(TypeError, match="num_rows"):
        AgentConfig()  # pyright: ignore[reportAbstractUsage]


@pytest.mark.parametrize("config", [PlainConfig, VTraceConfig, R2D2Config])
def test_batch_of_nothing_is_refused(config: type[AgentConfig]) -> None:
    """The config of every algorithm refuses a batch size of 0."""
    with pytest.raises(ConfigError, match="^batch_size: expected at least 1, got 0"):
        config(batch_size=0)


@pytest.mark.parametrize("config", [PlainConfig, VTraceConfig, R2D2Config])
def test_batch_that_the_learners_cannot_share_evenly_is_refused(
    config: type[AgentConfig],
) -> None:
    """The message says how many learners there are."""
    with pytest.raises(ConfigError, match="^batch_size: expected a multiple of the 4 learners"):
        config(batch_size=10).share(4)


def test_reused_unrolls_cost_no_env_steps() -> None:
    """V-trace trains on an unroll more than once, and counts its env steps once."""
    config = VTraceConfig(unroll_length=20, batch_size=4, sample_reuse=3)
    assert (config.unrolls_per_update, config.env_steps_per_update) == (12, 80)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (VTraceConfig(), "clipped to [-1, 1]"),
        (VTraceConfig(reward_scale=0.05), "multiplied by 0.05, clipped to [-1, 1]"),
        (VTraceConfig(reward_clip_max=math.inf), "clipped to [-1, inf]"),
        (
            VTraceConfig(reward_clip_min=-math.inf, reward_clip_max=math.inf),
            "not clipped",
        ),
        (
            R2D2Config(),
            "not clipped; values are rescaled by h(x) = sign(x)(sqrt(|x| + 1) - 1) + 0.001 x",
        ),
        (
            R2D2Config(reward_scale=2),
            "multiplied by 2, not clipped; values are rescaled by h(x)",
        ),
    ],
)
def test_config_says_what_is_done_to_rewards(config: AgentConfig, words: str) -> None:
    """A run logs it once."""
    assert config.reward_handling.words.startswith(words)


def test_replay_is_shared_with_the_batch() -> None:
    """Sizes are rounded up, so that none becomes zero."""
    replay = ReplayConfig(replay_capacity=1001, replay_min_size=3)
    share = R2D2Config(batch_size=8, burn_in=7, replay=replay).share(4)
    assert (share.batch_size, share.burn_in) == (2, 7)
    assert (share.replay.replay_capacity, share.replay.replay_min_size) == (251, 1)


def test_run_that_ends_before_training_starts_is_refused() -> None:
    """R2D2 first collects replay_min_size sequences."""
    agent = R2D2Config(sequence_length=10, replay=ReplayConfig(replay_min_size=20))
    with pytest.raises(ConfigError, match="^total_env_steps: expected more than the 200 env"):
        RunConfig(agent=agent, learner=LearnerConfig(total_env_steps=200))
    RunConfig(agent=agent, learner=LearnerConfig(total_env_steps=201))


HEADER = """
import dataclasses
import math
from learner.config.agent_config import AgentConfig
"""


def test_built_in_configs_are_found_by_name() -> None:
    """A config also says which algorithm it belongs to."""
    for config in (VTraceConfig, R2D2Config):
        assert config_class_of(config().algorithm) is config


def test_agent_of_another_package_names_its_config(curious: type[AgentConfig]) -> None:
    """The class attribute `Config` names it."""
    assert curious.__name__ == "CuriousConfig"


def test_config_of_another_package_survives_its_file(
    curious: type[AgentConfig], tmp_path: Path
) -> None:
    """The fields stand beside the name, as for the built-in configs."""
    agent = dataclasses.replace(
        curious(), **{"algorithm": "curious_agent:Curious", "curiosity": 0.25, "shape": (3,)}
    )
    config = RunConfig(agent=agent)
    dump_config(config, tmp_path / "config.yaml", name="x")
    document = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert document["agent"] == {
        "algorithm": "curious_agent:Curious",
        "batch_size": 32,
        "curiosity": 0.25,
        "shape": [3],
    }
    assert load_config(tmp_path / "config.yaml") == config


def test_wrong_fields_of_another_packages_config_are_named(
    curious: type[AgentConfig], tmp_path: Path
) -> None:
    """The error is the same as for a built-in config."""
    del curious
    text = "agent: {algorithm: 'curious_agent:Curious', curiosity: x, unroll_length: 3}"
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "config.yaml")
    assert "agent.curiosity: expected a number, got 'x'" in str(caught.value)
    assert "agent.unroll_length: unknown field" in str(caught.value)


def test_config_of_another_package_reaches_a_trainer_process(curious: type[AgentConfig]) -> None:
    """It is pickled with the rest of the run's config."""
    config = RunConfig(agent=curious(algorithm="curious_agent:Curious", batch_size=3))
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("Thing = 3", "the class of an agent, got odd_agent:Thing, 3"),
        ("class Thing: pass", "whose Config is None"),
        ("class Thing:\n    Config = dict", "whose Config is <class 'dict'>"),
        (
            "class Config(AgentConfig):\n    n: int = 1\n    num_rows = 3\n",
            "whose Config has fields, but no @dataclasses.dataclass",
        ),
        (
            "@dataclasses.dataclass(frozen=True, kw_only=True)\nclass Config(AgentConfig):\n"
            "    n: int = 1\n",
            "whose Config does not define num_rows",
        ),
        (
            "@dataclasses.dataclass(frozen=True, kw_only=True)\nclass Config(AgentConfig):\n"
            "    n: int\n    num_rows = 3\n",
            "whose Config has no default for n",
        ),
        ("import no_such_library", "No module named 'no_such_library'"),
    ],
)
def test_agent_whose_config_cannot_hold_flags_is_refused(
    source: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message tells the author of the agent what is missing."""
    if "class Config" in source:
        source += "\n\nclass Thing:\n    Config = Config\n"
    write_module(tmp_path, "odd_agent.py", HEADER + source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="^agent: expected ") as caught:
        config_class_of("odd_agent:Thing")
    assert problem in str(caught.value)
