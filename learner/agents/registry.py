"""The name of an algorithm -> its agent.

Called where an environment's spec is known: by the learner, the trainer process and
`seed eval`. `learner/config/agent_config.py` finds the config of the same name.
"""

import inspect

from learner.agents.base import Agent
from learner.agents.r2d2 import R2D2Agent
from learner.agents.vtrace import VTraceAgent
from learner.config.agent_config import AGENTS, config_class_of
from learner.config.plugins import load
from learner.config.run_config import RunConfig
from learner.networks.base import class_of_torso
from seed.errors import ConfigError, expected
from seed.specs import EnvSpec

_BUILT_IN = {"vtrace": VTraceAgent, "r2d2": R2D2Agent}


def make_agent(spec: EnvSpec, config: RunConfig) -> Agent:
    """Returns the agent that the config names, for an environment.

    Raises:
      ConfigError: there is no such agent, or the config is another agent's.
      SpecError: the agent cannot serve the environment.
    """
    cls = agent_class_of(config.agent.algorithm)
    wanted = config_class_of(config.agent.algorithm)
    if not isinstance(config.agent, wanted):
        got = f"{type(config.agent).__name__} for {config.agent.algorithm}"
        raise ConfigError(expected("agent", wanted.__name__, got))
    return cls(spec, config.network, config.agent)


def check_classes(config: RunConfig) -> None:
    """Raises ConfigError if the agent's class or that of the torso cannot be used.

    Called when a learner starts: an environment's spec comes only with the first actor.
    """
    agent_class_of(config.agent.algorithm)
    class_of_torso(config.network.torso)


def agent_class_of(algorithm: str) -> type:
    """Returns the class of an algorithm, built as `cls(spec, config.network, config.agent)`.

    Raises:
      ConfigError: there is no such agent, its `Config` cannot hold flags, or it lacks a method
        of the `Agent` protocol.
    """
    if algorithm in _BUILT_IN:
        return _BUILT_IN[algorithm]
    config_class_of(algorithm)  # refuses what is no class, and a Config that cannot be used
    cls = load(AGENTS, algorithm)
    assert isinstance(cls, type)
    methods = [name for name, _ in inspect.getmembers(Agent, inspect.isfunction)]
    missing = {m for m in methods if m[0] != "_" and not callable(getattr(cls, m, None))}
    # In a class that derives from `Agent`: methods that it inherits without a body.
    missing |= set(getattr(cls, "__abstractmethods__", ()))
    if missing:
        wanted = "a class with the methods of learner.agents.base.Agent"
        got = f"{algorithm}, which lacks {', '.join(sorted(missing))}"
        raise ConfigError(expected(AGENTS.field, wanted, got))
    return cls
