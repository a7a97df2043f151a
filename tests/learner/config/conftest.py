"""An agent of another package, whose module is no part of this project."""

from pathlib import Path

import pytest

from learner.config.agent_config import AgentConfig, config_class_of
from tests.support.plugins import write_module

SOURCE = """
import dataclasses
from learner.config.agent_config import AgentConfig, VTraceConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class CuriousConfig(AgentConfig):
    curiosity: float = 0.5
    \"\"\"Weight of what is new.\"\"\"
    shape: tuple[int, ...] = (1, 2)

    @property
    def num_rows(self) -> int:
        return 3


class Curious:
    Config = CuriousConfig


class LikeVTrace:
    Config = VTraceConfig
"""


@pytest.fixture
def curious(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[AgentConfig]:
    """Makes `curious_agent:Curious` and `:LikeVTrace` importable; returns the first's config."""
    write_module(tmp_path, "curious_agent.py", SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    return config_class_of("curious_agent:Curious")
