"""Config -> agent."""

from learner.agents.base import Agent
from learner.agents.r2d2 import R2D2Agent
from learner.agents.vtrace import VTraceAgent
from learner.config.agent_config import R2D2Config, VTraceConfig
from learner.config.run_config import RunConfig
from seed.errors import SpecError, expected
from seed.specs import EnvSpec


def make_agent(spec: EnvSpec, config: RunConfig) -> Agent:
    """Returns the algorithm for an environment; raises SpecError if it cannot serve it."""
    if not spec.action.is_discrete:
        raise SpecError(expected("action", "a discrete space", f"{spec.action.dtype} array"))
    if isinstance(config.agent, R2D2Config):
        return R2D2Agent(spec, config.network, config.agent)
    assert isinstance(config.agent, VTraceConfig)
    return VTraceAgent(spec, config.network, config.agent)
